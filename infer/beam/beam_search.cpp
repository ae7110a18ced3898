#include "infer/beam/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/aten.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

const NamedValues<EarlyStopping>& early_stoppings() {
  static const NamedValues<EarlyStopping> kNames(
      "early stopping",
      {{"false", EarlyStopping::kFalse}, {"true", EarlyStopping::kTrue}, {"never", EarlyStopping::kNever}});
  return kNames;
}

Hypotheses::Hypotheses(const BeamSettings& settings, int64_t limit) : settings_(settings), limit_(limit) {
  if (settings.beams < 1 || limit < 1) throw std::logic_error("a beam search needs beams and room for a token");
}

double Hypotheses::scored(double sum, int64_t tokens) const {
  return sum / std::pow(static_cast<double>(tokens), settings_.length_penalty);
}

void Hypotheses::finish(const Continuation& last, std::span<const int64_t> output) {
  Hypothesis hypothesis{{output.begin(), output.end()}, 0};
  hypothesis.tokens.push_back(last.token);
  hypothesis.score = scored(last.score, std::ssize(hypothesis.tokens));
  const auto place = std::ranges::find_if(finished_, [&](const auto& one) { return one.score < hypothesis.score; });
  finished_.insert(place, std::move(hypothesis));
  if (std::ssize(finished_) > settings_.beams) finished_.pop_back();
}

bool Hypotheses::improves(double sum, int64_t tokens) const {
  const bool at_limit = settings_.early_stopping == EarlyStopping::kNever && settings_.length_penalty > 0;
  return scored(sum, at_limit ? limit_ : tokens) > finished_.back().score;
}

std::vector<Continuation> Hypotheses::advance(std::span<const Continuation> best, const std::vector<char>& ended,
                                              std::span<const std::span<const int64_t>> outputs) {
  const auto beams = static_cast<size_t>(settings_.beams);
  if (best.size() < beams || best.size() != ended.size()) throw std::logic_error("too few continuations of beams");
  std::vector<Continuation> running;
  for (size_t i = 0; i < best.size() && running.size() < beams; ++i) {
    if (ended[i] == 0) running.push_back(best[i]);
  }
  const bool all_ended = running.empty();
  for (size_t i = 0; running.size() < beams; ++i) {  // Transformers carries ended beams along
    if (ended[i] == 0) continue;
    running.push_back(best[i]);
    running.back().score += kHopeless;
  }
  // Continuations beyond the best `beams` only stand in for those that end.
  for (size_t i = 0; i < beams; ++i) {
    if (ended[i] != 0) finish(best[i], outputs[static_cast<size_t>(best[i].beam)]);
  }
  const int64_t tokens = std::ssize(outputs[static_cast<size_t>(running.front().beam)]) + 1;
  const bool full = std::ssize(finished_) == settings_.beams;
  done_ = all_ended ||
          (full && (settings_.early_stopping == EarlyStopping::kTrue || !improves(running.front().score, tokens)));
  return running;
}

// ---- The best continuations of running beams by one token each

namespace {

// The best continuations seen so far, best first. Of equal scores the earlier one stays in front.
class Best {
 public:
  explicit Best(std::span<Continuation> out) : out_(out) {}

  // Returns the score that a continuation must exceed to be among them.
  double least() const { return filled_ < out_.size() ? -std::numeric_limits<double>::infinity() : out_.back().score; }
  bool full() const { return filled_ == out_.size(); }

  void add(const Continuation& one) {
    size_t place = full() ? filled_ - 1 : filled_++;
    for (; place > 0 && out_[place - 1].score < one.score; --place) out_[place] = out_[place - 1];
    out_[place] = one;
  }

 private:
  std::span<Continuation> out_;
  size_t filled_ = 0;
};

// Fills `out` with the best continuations of a source's beams. log_probs: [beams,V].
template <class T>
void scan_source(const T* log_probs, std::span<const double> scores, int64_t vocabulary, std::span<Continuation> out) {
  Best best(out);
  for (size_t beam = 0; beam < scores.size(); ++beam) {
    const T* row = log_probs + static_cast<int64_t>(beam) * vocabulary;
    const auto score = static_cast<T>(scores[beam]);
    auto least = static_cast<T>(best.least());
    for (int64_t token = 0; token < vocabulary; ++token) {
      const T sum = row[token] + score;
      if (sum <= least && best.full()) continue;
      if (std::isnan(sum)) {
        out.front().score = sum;
        return;
      }
      best.add({static_cast<int64_t>(beam), token, static_cast<double>(sum)});
      least = static_cast<T>(best.least());
    }
  }
}

std::vector<Continuation> best_on_host(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                       int64_t count) {
  const int64_t sources = log_probs.size(0) / beams;
  const int64_t vocabulary = log_probs.size(1);
  std::vector<Continuation> best(static_cast<size_t>(sources * count));
  const auto scan = [&](const auto* values) {
    at::parallel_for(0, sources, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        scan_source(values + s * beams * vocabulary,
                    scores.subspan(static_cast<size_t>(s * beams), static_cast<size_t>(beams)), vocabulary,
                    std::span(best).subspan(static_cast<size_t>(s * count), static_cast<size_t>(count)));
      }
    });
  };
  if (log_probs.scalar_type() == at::kDouble) {
    scan(log_probs.const_data_ptr<double>());
  } else {
    scan(log_probs.const_data_ptr<float>());
  }
  return best;
}

std::vector<Continuation> best_on_device(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                         int64_t count) {
  const int64_t sources = log_probs.size(0) / beams;
  const int64_t vocabulary = log_probs.size(1);
  const at::Tensor so_far =
      at::tensor(at::ArrayRef<double>(scores.data(), scores.size()), at::kDouble).to(log_probs.options());
  const auto [values, places] =
      log_probs.add(so_far.unsqueeze(1)).view({sources, beams * vocabulary}).topk(count, /*dim=*/1);
  const at::Tensor sums = values.to(at::kCPU, at::kDouble).contiguous();
  const std::vector<int64_t> indices = to_host(places);
  std::vector<Continuation> best;
  for (size_t i = 0; i < indices.size(); ++i) {
    best.push_back({indices[i] / vocabulary, indices[i] % vocabulary, sums.const_data_ptr<double>()[i]});
  }
  return best;
}

// Returns the `count` best continuations of each source, best first, one source after the other. log_probs [R,V] are
// those of the next token, the `beams` rows of a source one after the other; scores [R] are those of the beams so far.
// Sums are rounded as log_probs are (fp32 or fp64). A source with a NaN has a NaN as its first score.
std::vector<Continuation> best_continuations(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                             int64_t count) {
  return log_probs.is_cpu() ? best_on_host(log_probs.contiguous(), scores, beams, count)
                            : best_on_device(log_probs, scores, beams, count);
}

constexpr int64_t kUsualBeams = 4;

// Source whose search is running.
struct Search {
  Hypotheses hypotheses;
  size_t output = 0;   // index of the source's first result
  DecodeStats stats;   // of the whole search
  bool ended = false;  // its outputs are finished, or it failed
};

class BeamLoop {
 public:
  BeamLoop(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings, RowBatch& batch,
           PhaseTimer& timer)
      : target_(target), beams_(beams), settings_(settings), batch_(batch), timer_(timer) {
    for (size_t first = 0; first < batch.rows.size(); first += width()) {
      Search& search =
          searches_.emplace_back(Search{Hypotheses(beams, batch.rows[first].limit), batch.rows[first].output, {}});
      for (size_t row = first; row < first + width(); ++row) search.stats.seconds += batch.rows[row].stats.seconds;
      scores_.push_back(0);
      scores_.insert(scores_.end(), width() - 1, kHopeless);
    }
    // At most `beams` continuations end by each EOS, so that as many are left to go on.
    wanted_ = std::max<int64_t>(2, 1 + std::ssize(settings.eos)) * beams.beams;
  }

  void run() {
    while (batch_.goes_on()) {
      timer_.enter(Phase::kVerify);
      const std::vector<Continuation> best = best_of_step();
      timer_.enter(Phase::kOther);
      std::vector<int64_t> parents(batch_.rows.size());
      const auto count = best.size() / searches_.size();
      for (size_t s = 0; s < searches_.size(); ++s) advance(s, std::span(best).subspan(s * count, count), parents);
      leave(parents);
    }
  }

 private:
  size_t width() const { return static_cast<size_t>(beams_.beams); }
  std::span<Row> rows_of(size_t search) { return std::span(batch_.rows).subspan(search * width(), width()); }

  // Runs the target once over all beams. Returns the best continuations of each source.
  std::vector<Continuation> best_of_step() {
    model::StepInput input;
    input.logits = model::Logits::kLast;
    input.new_tokens.assign(batch_.rows.size(), 1);
    input.tokens = last_tokens(batch_.rows, target_.info().device);                  // [R,1]
    const at::Tensor logits = target_.step(input, *batch_.state).logits.squeeze(1);  // [R,V]
    const bool wide = logits.scalar_type() == at::kDouble;
    // Transformers' processors change log-probabilities here, not logits.
    at::Tensor log_probs = at::log_softmax(logits, 1, wide ? at::kDouble : at::kFloat);
    settings_.process(log_probs, {batch_.rows});
    if (settings_.processors.renormalizes()) log_probs = at::log_softmax(log_probs, 1);
    return best_continuations(log_probs, scores_, beams_.beams, std::min(wanted_, beams_.beams * log_probs.size(1)));
  }

  // Takes a step's best continuations of a source. parents[row]: the former row whose tokens the row now continues.
  void advance(size_t s, std::span<const Continuation> best, std::vector<int64_t>& parents) {
    Search& search = searches_[s];
    ++search.stats.target_runs;
    search.stats.target_tokens += beams_.beams;
    const std::span<Row> rows = rows_of(s);
    if (rows.front().fails(std::isnan(best.front().score) ? kNoToken : 0, rows.front().emitted(), "target")) {
      search.ended = true;
      return;
    }
    std::vector<std::span<const int64_t>> outputs;
    for (const Row& row : rows) outputs.push_back(std::span(row.tokens).subspan(static_cast<size_t>(row.prefix)));
    std::vector<char> ended;
    for (const Continuation& one : best) ended.push_back(ends(rows[static_cast<size_t>(one.beam)], one.token) ? 1 : 0);
    const std::vector<Continuation> running = search.hypotheses.advance(best, ended, outputs);
    search.ended = search.hypotheses.done();
    if (!search.ended) go_on(s, running, parents);
  }

  // Returns whether a token ends the output of a running beam.
  bool ends(const Row& row, int64_t token) const {
    if (row.remaining() == 1 || std::ranges::find(settings_.eos, token) != settings_.eos.end()) return true;
    return row.stops && StopStringMatcher(*row.stops).add(token);
  }

  // Gives the rows of a source the tokens of its continuations.
  void go_on(size_t s, std::span<const Continuation> running, std::vector<int64_t>& parents) {
    const std::span<Row> rows = rows_of(s);
    std::vector<std::vector<int64_t>> tokens;
    std::vector<std::shared_ptr<StopStringMatcher>> stops;
    for (const Continuation& one : running) {
      const Row& parent = rows[static_cast<size_t>(one.beam)];
      tokens.push_back(parent.tokens);
      tokens.back().push_back(one.token);
      stops.push_back(parent.stops ? std::make_shared<StopStringMatcher>(*parent.stops) : nullptr);
      if (parent.stops) stops.back()->add(one.token);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].tokens = std::move(tokens[i]);
      rows[i].stops = std::move(stops[i]);
      scores_[s * width() + i] = running[i].score;
      parents[s * width() + i] = static_cast<int64_t>(s * width()) + running[i].beam;
    }
  }

  // Moves the sources whose search has ended out of the batch, and lets the state follow the beams.
  void leave(std::span<const int64_t> parents) {
    if (std::ranges::any_of(searches_, &Search::ended)) share_time();
    std::vector<Search> searches;
    std::vector<Row> rows;
    std::vector<double> scores;
    std::vector<int64_t> kept;
    for (size_t s = 0; s < searches_.size(); ++s) {
      if (searches_[s].ended) {
        finish(s);
        continue;
      }
      searches.push_back(std::move(searches_[s]));
      for (size_t row = s * width(); row < (s + 1) * width(); ++row) {
        rows.push_back(std::move(batch_.rows[row]));
        scores.push_back(scores_[row]);
        kept.push_back(parents[row]);
      }
    }
    const bool same =
        kept.size() == parents.size() && std::ranges::is_sorted(kept) && std::ranges::adjacent_find(kept) == kept.end();
    searches_ = std::move(searches);
    batch_.rows = std::move(rows);
    scores_ = std::move(scores);
    if (!kept.empty() && !same) batch_.state->select_rows(kept);
  }

  // Divides the time since the last call equally among the sources in the batch.
  void share_time() {
    const PhaseSeconds part = timer_.lap().scaled(1.0 / static_cast<double>(searches_.size()));
    for (Search& search : searches_) search.stats.seconds += part;
  }

  // Makes the finished rows of a source.
  void finish(size_t s) {
    Search& search = searches_[s];
    const std::span<Row> rows = rows_of(s);
    std::vector<Hypothesis> found = search.hypotheses.finished();
    // Where stop strings ended every continuation, running beams stand in for outputs that are missing.
    for (size_t i = 0; i < rows.size() && std::ssize(found) < beams_.outputs; ++i) {
      const std::vector<int64_t>& tokens = rows[i].tokens;
      found.push_back({{tokens.begin() + rows[i].prefix, tokens.end()}, kHopeless});
    }
    for (int64_t i = 0; i < beams_.outputs; ++i) {
      Row row = rows.front();
      row.output = search.output + static_cast<size_t>(i);
      row.finished = true;
      row.stats = i == 0 ? std::move(search.stats) : DecodeStats{};
      if (!row.failure) {
        Hypothesis& best = found[static_cast<size_t>(i)];
        row.tokens.resize(static_cast<size_t>(row.prefix));
        row.tokens.insert(row.tokens.end(), best.tokens.begin(), best.tokens.end());
        row.score = best.score;
        row.stats.emitted = row.emitted();
      }
      if (row.failure && batch_.on_tokens) batch_.on_tokens(row.output, {}, true);
      if (!row.failure) batch_.notify(row, row.prefix);
      batch_.finished.push_back(std::move(row));
    }
  }

  model::LanguageModel& target_;
  const BeamSettings& beams_;
  const DecodeSettings& settings_;
  RowBatch& batch_;
  PhaseTimer& timer_;
  std::vector<Search> searches_;
  std::vector<double> scores_;  // log-probabilities of the beams so far, by row
  int64_t wanted_ = 0;          // continuations of a source that are looked at in a step
};

}  // namespace

BeamSettings beam_settings(const DecodeOptions& options, const model::GenerationConfig& generation) {
  BeamSettings settings;
  settings.beams = options.num_beams.value_or(generation.num_beams > 1 ? generation.num_beams : kUsualBeams);
  settings.length_penalty = options.length_penalty.value_or(generation.length_penalty);
  settings.early_stopping =
      early_stoppings().at(options.early_stopping.empty() ? generation.early_stopping : options.early_stopping);
  settings.outputs = options.n_best;
  if (settings.outputs > settings.beams) {
    throw UserError({.where = "n_best",
                     .what = "beam search gives at most as many outputs as it has beams",
                     .expected = fmt::format("at most num_beams = {}", settings.beams),
                     .found = std::to_string(settings.outputs),
                     .hint = "raise num_beams"});
  }
  return settings;
}

void decode_beams(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings,
                  RowBatch& batch, PhaseTimer& timer) {
  BeamLoop(target, beams, settings, batch, timer).run();
}

}  // namespace draftsmith::infer
