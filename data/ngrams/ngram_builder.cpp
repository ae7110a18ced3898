#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "data/hdf5/hdf5.h"
#include "data/ngrams/ngram_table.h"

namespace draftsmith::data {

namespace {

// Packs n-grams into numbers and counts them by sorting, in memory if they fit, else in sorted parts on disk that are
// merged.

// Three symbols in one number; numbers are ordered like (before, last, next).
constexpr int64_t kNgramSymbolBits = 21;
constexpr int64_t kNgramRowEnd = (int64_t{1} << kNgramSymbolBits) - 1;  // symbol after a row's last token
static_assert(kMostNgramIds == kNgramRowEnd - 1);                       // one symbol is the beginning of rows

struct NgramKey {
  int64_t before = 0;
  int64_t last = 0;
  int64_t next = 0;

  uint64_t packed() const {
    return static_cast<uint64_t>(((before << kNgramSymbolBits | last) << kNgramSymbolBits) | next);
  }
  static NgramKey unpacked(uint64_t key) {
    const auto symbol = [key](int64_t place) {
      return static_cast<int64_t>(key >> static_cast<uint64_t>(place * kNgramSymbolBits)) & kNgramRowEnd;
    };
    return {symbol(2), symbol(1), symbol(0)};
  }
};

class NgramSorter {
 public:
  // Sorts `keys_at_once` keys in memory and writes the parts into `folder`, which must exist.
  NgramSorter(std::filesystem::path folder, size_t keys_at_once);
  // Adds a key. Errors: RunError if a part cannot be written.
  void add(const NgramKey& key) {
    keys_.push_back(key.packed());
    if (keys_.size() == keys_at_once_) spill();
  }
  // Calls visit(key, count) once for each distinct key, in ascending order. Call it once only.
  void finish(const std::function<void(const NgramKey&, int64_t)>& visit);

 private:
  struct Counted {
    uint64_t key;
    int64_t count;
  };
  void sort_keys(const std::function<void(Counted)>& visit);
  void spill();
  void merge(const std::function<void(const NgramKey&, int64_t)>& visit) const;

  std::filesystem::path folder_;
  size_t keys_at_once_;
  std::vector<uint64_t> keys_;
  std::vector<std::filesystem::path> parts_;
};

NgramSorter::NgramSorter(std::filesystem::path folder, size_t keys_at_once)
    : folder_(std::move(folder)), keys_at_once_(keys_at_once) {}

// Visits each distinct key in memory once and clears them.
void NgramSorter::sort_keys(const std::function<void(Counted)>& visit) {
  std::sort(keys_.begin(), keys_.end());
  for (auto first = keys_.begin(); first != keys_.end();) {
    const auto next = std::find_if(first, keys_.end(), [&](uint64_t key) { return key != *first; });
    visit({*first, next - first});
    first = next;
  }
  keys_.clear();
}

void NgramSorter::spill() {
  parts_.push_back(folder_ / ("part-" + std::to_string(parts_.size())));
  SpillFile<Counted> part(parts_.back());
  sort_keys([&](Counted counted) { part.add(counted); });
  part.close();
}

void NgramSorter::merge(const std::function<void(const NgramKey&, int64_t)>& visit) const {
  std::vector<MappedFile> files(parts_.begin(), parts_.end());
  std::vector<std::span<const Counted>> rest;
  using Head = std::pair<uint64_t, size_t>;  // smallest key of a part
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  for (size_t part = 0; part < files.size(); ++part) {
    rest.push_back(all_values<Counted>(files[part]));
    if (!rest.back().empty()) heads.emplace(rest.back().front().key, part);
  }
  while (!heads.empty()) {
    Counted sum{heads.top().first, 0};
    while (!heads.empty() && heads.top().first == sum.key) {
      std::span<const Counted>& values = rest[heads.top().second];
      const size_t part = heads.top().second;
      heads.pop();
      sum.count += values.front().count;
      values = values.subspan(1);
      if (!values.empty()) heads.emplace(values.front().key, part);
    }
    visit(NgramKey::unpacked(sum.key), sum.count);
  }
}

void NgramSorter::finish(const std::function<void(const NgramKey&, int64_t)>& visit) {
  if (parts_.empty()) return sort_keys([&](Counted c) { visit(NgramKey::unpacked(c.key), c.count); });
  spill();
  keys_.shrink_to_fit();
  merge(visit);
}

namespace fs = std::filesystem;

constexpr int64_t kTableAlignment = 64;

// The arrays of a table while they grow: arrays as long as the vocabulary in memory, the others on disk.
struct TableArrays {
  TableArrays(const fs::path& folder, int64_t vocabulary)
      : unigrams(static_cast<size_t>(vocabulary)),
        bigram_children(1),
        bigram_tokens(folder / "bigram-tokens"),
        bigram_counts(folder / "bigram-counts"),
        trigram_children(folder / "trigram-children"),
        trigram_totals(folder / "trigram-totals"),
        trigram_best(folder / "trigram-best"),
        trigram_tokens(folder / "trigram-tokens"),
        trigram_counts(folder / "trigram-counts") {
    trigram_children.add(0);
  }

  std::vector<int32_t> unigrams;         // [V]
  std::vector<int64_t> bigram_children;  // [V+2]
  std::vector<int32_t> bigram_totals;    // [V+1]
  std::vector<int32_t> bigram_best;      // [V+1]
  SpillFile<int32_t> bigram_tokens;
  SpillFile<int32_t> bigram_counts;
  SpillFile<int64_t> trigram_children;
  SpillFile<int32_t> trigram_totals;
  SpillFile<int32_t> trigram_best;
  SpillFile<int32_t> trigram_tokens;
  SpillFile<int32_t> trigram_counts;
};

// Fills the arrays from n-grams in ascending order. An n-gram whose next symbol is the row's end counts only for its
// pair (before, last).
class TableFiller {
 public:
  explicit TableFiller(TableArrays& arrays) : arrays_(arrays) {}

  void add(const NgramKey& key, int64_t count) {
    if (key.before != before_ || key.last != last_) {
      end_pair();
      end_contexts(key.before);
      last_ = key.last;
    }
    pair_count_ += count;
    if (key.next == kNgramRowEnd) return;
    arrays_.trigram_tokens.add(static_cast<int32_t>(key.next));
    arrays_.trigram_counts.add(static_cast<int32_t>(count));
    pair_total_ += count;
  }

  void finish() {
    end_pair();
    end_contexts(static_cast<int64_t>(arrays_.unigrams.size()) + 1);
    arrays_.bigram_tokens.close();
    arrays_.bigram_counts.close();
    arrays_.trigram_children.close();
    arrays_.trigram_totals.close();
    arrays_.trigram_tokens.close();
    arrays_.trigram_counts.close();
  }

 private:
  void end_pair() {
    if (last_ < 0) return;
    arrays_.bigram_tokens.add(static_cast<int32_t>(last_));
    arrays_.bigram_counts.add(static_cast<int32_t>(pair_count_));
    arrays_.trigram_children.add(arrays_.trigram_tokens.count());
    arrays_.trigram_totals.add(static_cast<int32_t>(pair_total_));
    context_total_ += pair_count_;
    pair_count_ = 0;
    pair_total_ = 0;
    last_ = -1;
  }

  // Ends all contexts before `next`, including contexts without a next token.
  void end_contexts(int64_t next) {
    for (; before_ < next; ++before_) {
      arrays_.bigram_children.push_back(arrays_.bigram_tokens.count());
      arrays_.bigram_totals.push_back(static_cast<int32_t>(context_total_));
      context_total_ = 0;
    }
  }

  TableArrays& arrays_;
  int64_t before_ = 0;
  int64_t last_ = -1;
  int64_t pair_count_ = 0;     // occurrences of (before, last)
  int64_t pair_total_ = 0;     // occurrences with a next token
  int64_t context_total_ = 0;  // occurrences of before_ with a next token
};

// Counts a row's tokens. Order 2 counts pairs only. The symbol `vocabulary` is the beginning.
void count_row(std::span<const int32_t> row, int64_t order, std::vector<int32_t>& unigrams, NgramSorter& sorter) {
  auto last = static_cast<int64_t>(unigrams.size());
  int64_t before = last;
  for (size_t i = 0; i < row.size(); ++i) {
    ++unigrams[static_cast<size_t>(row[i])];
    if (order == 2) sorter.add({last, row[i], kNgramRowEnd});
    if (order == 3 && i > 0) sorter.add({before, last, row[i]});
    before = last;
    last = row[i];
  }
  if (order == 3 && !row.empty()) sorter.add({before, last, kNgramRowEnd});
}

// The arrays of a table for reading.
class FinishedArrays {
 public:
  explicit FinishedArrays(const TableArrays& arrays)
      : arrays_(arrays),
        bigram_tokens_(arrays.bigram_tokens.map()),
        bigram_counts_(arrays.bigram_counts.map()),
        trigram_children_(arrays.trigram_children.map()),
        trigram_totals_(arrays.trigram_totals.map()),
        trigram_tokens_(arrays.trigram_tokens.map()),
        trigram_counts_(arrays.trigram_counts.map()) {}

  NgramLevel bigrams() const {
    return {arrays_.bigram_children, arrays_.bigram_totals, arrays_.bigram_best, all_values<int32_t>(bigram_tokens_),
            all_values<int32_t>(bigram_counts_)};
  }
  NgramLevel trigrams(std::span<const int32_t> best) const {
    return {all_values<int64_t>(trigram_children_), all_values<int32_t>(trigram_totals_), best,
            all_values<int32_t>(trigram_tokens_), all_values<int32_t>(trigram_counts_)};
  }

 private:
  const TableArrays& arrays_;
  MappedFile bigram_tokens_;
  MappedFile bigram_counts_;
  MappedFile trigram_children_;
  MappedFile trigram_totals_;
  MappedFile trigram_tokens_;
  MappedFile trigram_counts_;
};

// Returns the token of the largest q in a context: a token seen there, or the most likely token of the lower order,
// whose q is the largest of all tokens not seen there.
int32_t best_of(const NgramCounts& counts, const NgramLevel& level, int64_t context, const NgramNodes& nodes,
                int64_t best_of_lower) {
  int64_t best = best_of_lower;
  double highest = counts.probability(nodes, best);
  const auto at = static_cast<size_t>(context);
  for (int64_t i = level.children[at]; i < level.children[at + 1]; ++i) {
    const int64_t token = level.tokens[static_cast<size_t>(i)];
    const double q = counts.probability(nodes, token);
    if (q < highest || (q == highest && token >= best)) continue;
    highest = q;
    best = token;
  }
  return static_cast<int32_t>(best);
}

void find_best(TableArrays& arrays, const FinishedArrays& finished, int64_t order) {
  const auto contexts = static_cast<int64_t>(arrays.bigram_totals.size());
  arrays.bigram_best.reserve(arrays.bigram_totals.size());
  const NgramCounts pairs(arrays.unigrams, finished.bigrams(), {});
  for (int64_t context = 0; context < contexts; ++context) {
    const int64_t seen = arrays.bigram_totals[static_cast<size_t>(context)] > 0 ? context : -1;
    arrays.bigram_best.push_back(best_of(pairs, finished.bigrams(), context, {.bigram = seen}, pairs.most_likely({})));
  }
  if (order > 2) {
    const NgramLevel bigrams = finished.bigrams();
    const NgramLevel trigrams = finished.trigrams({});
    const NgramCounts counts(arrays.unigrams, bigrams, trigrams);
    for (size_t pair = 0; pair < bigrams.tokens.size(); ++pair) {
      NgramNodes nodes = counts.find({.before = contexts, .last = bigrams.tokens[pair]});
      const int64_t lower = counts.most_likely(nodes);
      if (trigrams.totals[pair] > 0) nodes.trigram = static_cast<int64_t>(pair);
      arrays.trigram_best.add(best_of(counts, trigrams, static_cast<int64_t>(pair), nodes, lower));
    }
  }
  arrays.trigram_best.close();
}

void write_level(Hdf5Writer& output, const std::string& group, const NgramLevel& level) {
  output.write_array(group + "/children", level.children);
  output.write_array(group + "/totals", level.totals);
  output.write_array(group + "/best", level.best);
  output.write_array(group + "/tokens", level.tokens);
  output.write_array(group + "/counts", level.counts);
}

void write_table(const fs::path& out, const NgramInfo& info, const TableArrays& arrays,
                 const FinishedArrays& finished) {
  Hdf5Writer output(out, kTableAlignment);
  output.set_attribute("/", "format", "draftsmith ngrams");
  output.set_attribute("/", "format_version", NgramInfo::kFormatVersion);
  output.set_attribute("/", "tokenizer_hash", info.tokenizer_hash);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "order", info.order);
  output.set_attribute("/", "examples", info.examples);
  output.set_attribute("/", "target_tokens", info.target_tokens);
  for (const auto& [key, value] : info.provenance) output.set_attribute("/provenance", key, value);
  output.write_array("/unigrams/counts", std::span<const int32_t>(arrays.unigrams));
  if (info.order > 1) write_level(output, "/bigrams", finished.bigrams());
  if (info.order > 2) {
    const MappedFile best = arrays.trigram_best.map();
    write_level(output, "/trigrams", finished.trigrams(all_values<int32_t>(best)));
  }
  output.finish();
}

void check_size(const fs::path& file, const CorpusInfo& corpus) {
  const auto require = [&](const std::string& what, int64_t value, int64_t most) {
    if (value <= most) return;
    throw UserError({.where = file.string(),
                     .what = what,
                     .expected = "at most " + std::to_string(most),
                     .found = std::to_string(value),
                     .hint = "n-gram tables pack a token into 21 bits and a count into 31"});
  };
  require("the vocabulary is larger than an n-gram table's", corpus.vocabulary, kMostNgramIds);
  require("the corpus has more target tokens than an n-gram table counts", corpus.target_tokens,
          std::numeric_limits<int32_t>::max());
}

}  // namespace

Fields<NgramOptions> NgramOptions::fields() {
  return Fields<NgramOptions>("n-gram table options")
      .add("order", &NgramOptions::order, Range{1, 3}, Unit{"tokens"},
           "Longest n-gram counted: 1 unigrams, 2 bigrams, 3 trigrams; shorter ones are what it backs off to.")
      .add("memory_mb", &NgramOptions::memory_mb, Range{1, 1 << 20}, Unit{"megabytes"}, NoResult{},
           "Memory for sorting; what does not fit is sorted on disk beside the table.");
}

NgramReport build_ngram_table(const fs::path& corpus, const NgramOptions& options, const fs::path& out,
                              const ProgressCallback& progress) {
  const CorpusTargets targets(corpus);
  check_size(corpus, targets.info());
  const AtomicPath scratch(out.string() + ".parts");  // never committed, so its destructor removes it
  make_directories(scratch.temporary());
  TableArrays arrays(scratch.temporary(), targets.info().vocabulary);
  const auto keys_at_once = static_cast<size_t>(options.memory_mb) * (size_t{1} << 20) / sizeof(uint64_t);
  NgramSorter sorter(scratch.temporary(), keys_at_once);
  targets.read([&](std::span<const int32_t> row) { count_row(row, options.order, arrays.unigrams, sorter); }, progress);
  TableFiller filler(arrays);
  sorter.finish([&](const NgramKey& key, int64_t count) { filler.add(key, count); });
  filler.finish();
  const FinishedArrays finished(arrays);
  if (options.order > 1) find_best(arrays, finished, options.order);
  NgramInfo info{.tokenizer_hash = targets.info().tokenizer_hash,
                 .vocabulary = targets.info().vocabulary,
                 .order = options.order,
                 .examples = targets.info().examples,
                 .target_tokens = targets.info().target_tokens,
                 .provenance = targets.info().provenance};
  info.provenance["corpus"] = corpus.string();
  write_table(out, info, arrays, finished);
  return {info.examples, info.target_tokens, arrays.bigram_tokens.count(), arrays.trigram_tokens.count()};
}

}  // namespace draftsmith::data
