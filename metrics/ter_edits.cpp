#include "metrics/ter_edits.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>

namespace draftsmith::metrics {
namespace {

using Words = std::vector<uint32_t>;

constexpr int64_t kMostShiftedWords = 10;
constexpr int64_t kMostShiftDistance = 50;
constexpr int64_t kMostCandidates = 1000;  // for a pair of texts
constexpr int64_t kBeam = 25;              // columns on each side of the diagonal
constexpr int64_t kInfinity = 10'000'000'000'000'000;

enum class Operation : char { kUndefined, kKeep, kSubstitute, kInsert, kDelete };

struct Cell {
  int64_t cost = kInfinity;
  Operation operation = Operation::kUndefined;
};

// Words of the hypothesis and the reference that an edit distance leaves as they are.
struct Alignment {
  std::vector<int64_t> place;  // by word of the reference: the last word of the hypothesis up to it, or -1
  std::vector<int> hypothesis_errors;
  std::vector<int> reference_errors;
};

// Edit distances of orders of the same words from a reference. The columns that a row computes depend on its number
// alone, so that cells outside stay infinite, and rows of a common beginning are used again.
class BeamDistance {
 public:
  BeamDistance(Words words, const Words& reference) : reference_(reference) {
    const double rows = static_cast<double>(words.size());
    ratio_ = words.empty() ? 1 : static_cast<double>(reference.size()) / rows;
    const double half = ratio_ / 2;
    beam_ = static_cast<double>(kBeam) < half ? static_cast<int64_t>(std::ceil(half + kBeam)) : kBeam;
    base_.assign(words.size() + 1, Row(reference.size() + 1));
    other_ = base_;
    for (size_t j = 0; j <= reference.size(); ++j) base_[0][j] = {static_cast<int64_t>(j), Operation::kInsert};
    set_words(std::move(words));
  }

  // Takes another order of the words as the one that others are compared with.
  void set_words(Words words) {
    words_ = std::move(words);
    for (size_t i = 1; i <= words_.size(); ++i) fill(i, words_[i - 1], base_[i - 1], base_[i]);
  }

  const Words& words() const { return words_; }
  int64_t distance() const { return base_.back().back().cost; }

  // Returns the distance of another order of the words.
  int64_t distance_of(const Words& words) {
    const auto changed = std::mismatch(words.begin(), words.end(), words_.begin()).first;
    const auto same = static_cast<size_t>(changed - words.begin());
    if (same == words.size()) return distance();
    for (size_t i = same + 1; i <= words.size(); ++i) {
      fill(i, words[i - 1], i == same + 1 ? base_[i - 1] : other_[i - 1], other_[i]);
    }
    return other_.back().back().cost;
  }

  Alignment alignment() const {
    Alignment result;
    int64_t place = -1;
    for (const Operation operation : operations()) {
      const int error = operation == Operation::kKeep ? 0 : 1;
      if (operation != Operation::kInsert) {
        ++place;
        result.hypothesis_errors.push_back(error);
      }
      if (operation != Operation::kDelete) {
        result.place.push_back(place);
        result.reference_errors.push_back(error);
      }
    }
    return result;
  }

 private:
  using Row = std::vector<Cell>;

  void fill(size_t i, uint32_t word, const Row& above, Row& row) const {
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio_));
    const auto width = static_cast<int64_t>(row.size());
    const int64_t end = i == words_.size() ? width : std::min(width, diagonal + beam_);
    for (auto j = static_cast<size_t>(std::max<int64_t>(0, diagonal - beam_)); j < static_cast<size_t>(end); ++j) {
      Cell best;
      // Of equal costs the first is taken, so the order matters.
      const auto offer = [&best](int64_t cost, Operation operation) {
        if (cost < best.cost) best = {cost, operation};
      };
      if (j > 0 && word == reference_[j - 1]) offer(above[j - 1].cost, Operation::kKeep);
      if (j > 0 && word != reference_[j - 1]) offer(above[j - 1].cost + 1, Operation::kSubstitute);
      offer(above[j].cost + 1, Operation::kDelete);
      if (j > 0) offer(row[j - 1].cost + 1, Operation::kInsert);
      row[j] = best;
    }
  }

  // Returns the operations from the first word to the last.
  std::vector<Operation> operations() const {
    std::vector<Operation> result;
    size_t i = words_.size();
    size_t j = reference_.size();
    while (i > 0 || j > 0) {
      const Operation operation = base_[i][j].operation;
      if (operation == Operation::kUndefined) throw std::logic_error("ter: the beam lost the edit distance");
      result.push_back(operation);
      if (operation != Operation::kInsert) --i;
      if (operation != Operation::kDelete) --j;
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

  const Words& reference_;
  Words words_;
  double ratio_ = 1;
  int64_t beam_ = kBeam;
  std::vector<Row> base_;   // of words_
  std::vector<Row> other_;  // of the last other order
};

// Run of words of the hypothesis that the reference has elsewhere.
struct Run {
  int64_t start = 0;  // in the hypothesis
  int64_t place = 0;  // in the reference
  int64_t length = 0;
};

// Returns the words with the run moved before the word `target`.
Words shifted(const Words& words, const Run& run, int64_t target) {
  Words result = words;
  const auto at = [&result](int64_t index) { return result.begin() + index; };
  const int64_t end = run.start + run.length;
  if (target < run.start) {
    std::rotate(at(target), at(run.start), at(end));
  } else if (target > end) {
    std::rotate(at(run.start), at(end), at(target));
  } else {
    // Inside of the run itself, the run moves behind the words that follow.
    std::rotate(at(run.start), at(end), at(std::min<int64_t>(run.length + target, std::ssize(result))));
  }
  return result;
}

// Best shift so far: a higher key wins, in Tercom's order of preferences.
struct Shift {
  std::tuple<int64_t, int64_t, int64_t, int64_t> key;  // gain, length, first start, first target
  Words words;
};

// Searches the shift of one run of words that lowers the edit distance most.
class ShiftSearch {
 public:
  ShiftSearch(BeamDistance& distance, const Words& reference, int64_t& candidates)
      : distance_(distance), reference_(reference), candidates_(candidates), alignment_(distance.alignment()) {}

  std::optional<Shift> best() {
    const auto rows = std::ssize(distance_.words());
    for (int64_t start = 0; start < rows; ++start) {
      for (int64_t place = 0; place < std::ssize(reference_); ++place) {
        if (std::abs(place - start) > kMostShiftDistance) continue;
        if (!try_runs(start, place)) return std::move(best_);
      }
    }
    return std::move(best_);
  }

 private:
  // Tries the runs of all lengths that begin here. Returns false when enough candidates were tried.
  bool try_runs(int64_t start, int64_t place) {
    const Words& words = distance_.words();
    const int64_t longest = std::min({kMostShiftedWords, std::ssize(words) - start, std::ssize(reference_) - place});
    for (int64_t length = 1; length <= longest; ++length) {
      if (words[static_cast<size_t>(start + length - 1)] != reference_[static_cast<size_t>(place + length - 1)]) break;
      const Run run{start, place, length};
      if (!is_useful(run)) continue;
      try_targets(run);
      if (candidates_ >= kMostCandidates) return false;
    }
    return true;
  }

  // Returns whether both sides have an error in the run, and the run would not move inside of itself.
  bool is_useful(const Run& run) const {
    const auto errors = [&run](const std::vector<int>& all, int64_t from) {
      return std::accumulate(all.begin() + from, all.begin() + from + run.length, 0);
    };
    const int64_t target = alignment_.place[static_cast<size_t>(run.place)];
    return errors(alignment_.hypothesis_errors, run.start) > 0 && errors(alignment_.reference_errors, run.place) > 0 &&
           (target < run.start || target >= run.start + run.length);
  }

  void try_targets(const Run& run) {
    int64_t previous = -1;
    for (int64_t place = run.place - 1; place < run.place + run.length; ++place) {
      const int64_t target = place < 0 ? 0 : alignment_.place[static_cast<size_t>(place)] + 1;
      if (target == previous) continue;
      previous = target;
      Words words = shifted(distance_.words(), run, target);
      const int64_t gain = distance_.distance() - distance_.distance_of(words);
      ++candidates_;
      const std::tuple key{gain, run.length, -run.start, -target};
      if (!best_ || key > best_->key) best_ = Shift{key, std::move(words)};
    }
  }

  BeamDistance& distance_;
  const Words& reference_;
  int64_t& candidates_;
  Alignment alignment_;
  std::optional<Shift> best_;
};

}  // namespace

int64_t ter_edits(const std::vector<uint32_t>& hypothesis, const std::vector<uint32_t>& reference) {
  if (reference.empty()) return std::ssize(hypothesis);
  BeamDistance distance(hypothesis, reference);
  int64_t candidates = 0;
  int64_t shifts = 0;
  while (true) {
    std::optional<Shift> shift = ShiftSearch(distance, reference, candidates).best();
    if (candidates >= kMostCandidates || !shift || std::get<0>(shift->key) <= 0) break;
    ++shifts;
    distance.set_words(std::move(shift->words));
  }
  return shifts + distance.distance();
}

}  // namespace draftsmith::metrics
