#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "data/hdf5/hdf5.h"
#include "data/ngrams/ngram_table.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

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

// The arrays of one order while they grow (NgramLevel).
struct LevelArrays {
  std::vector<int64_t> children = {0};
  std::vector<int32_t> totals{};
  std::vector<int32_t> best{};
  std::vector<int32_t> tokens{};
  std::vector<int32_t> counts{};

  NgramLevel level() const { return {children, totals, best, tokens, counts}; }
};

struct TableArrays {
  std::vector<int32_t> unigrams;  // [V]
  LevelArrays bigrams{};
  LevelArrays trigrams{};
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
    arrays_.trigrams.tokens.push_back(static_cast<int32_t>(key.next));
    arrays_.trigrams.counts.push_back(static_cast<int32_t>(count));
    pair_total_ += count;
  }

  void finish() {
    end_pair();
    end_contexts(static_cast<int64_t>(arrays_.unigrams.size()) + 1);
  }

 private:
  void end_pair() {
    if (last_ < 0) return;
    arrays_.bigrams.tokens.push_back(static_cast<int32_t>(last_));
    arrays_.bigrams.counts.push_back(static_cast<int32_t>(pair_count_));
    arrays_.trigrams.children.push_back(std::ssize(arrays_.trigrams.tokens));
    arrays_.trigrams.totals.push_back(static_cast<int32_t>(pair_total_));
    context_total_ += pair_count_;
    pair_count_ = 0;
    pair_total_ = 0;
    last_ = -1;
  }

  // Ends all contexts before `next`, including contexts without a next token.
  void end_contexts(int64_t next) {
    for (; before_ < next; ++before_) {
      arrays_.bigrams.children.push_back(std::ssize(arrays_.bigrams.tokens));
      arrays_.bigrams.totals.push_back(static_cast<int32_t>(context_total_));
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
void count_row(std::span<const int32_t> row, int64_t order, std::vector<int32_t>& unigrams,
               std::vector<uint64_t>& keys) {
  auto last = static_cast<int64_t>(unigrams.size());
  int64_t before = last;
  const auto add = [&](const NgramKey& key) { keys.push_back(key.packed()); };
  for (size_t i = 0; i < row.size(); ++i) {
    ++unigrams[static_cast<size_t>(row[i])];
    if (order == 2) add({last, row[i], kNgramRowEnd});
    if (order == 3 && i > 0) add({before, last, row[i]});
    before = last;
    last = row[i];
  }
  if (order == 3 && !row.empty()) add({before, last, kNgramRowEnd});
}

// Packs the n-grams into numbers and counts them by sorting.
TableArrays count_ngrams(const Corpus& corpus, int64_t order, const ProgressCallback& progress) {
  constexpr int64_t kExamplesAtOnce = int64_t{1} << 14;  // between two calls of `progress`
  TableArrays arrays{.unigrams = std::vector<int32_t>(static_cast<size_t>(corpus.info().vocabulary))};
  std::vector<uint64_t> keys;
  if (order > 1) keys.reserve(static_cast<size_t>(corpus.info().target_tokens));
  for (int64_t first = 0; first < corpus.size(); first += kExamplesAtOnce) {
    const int64_t last = std::min(first + kExamplesAtOnce, corpus.size());
    work_point();
    for (int64_t i = first; i < last; ++i) count_row(corpus.target(i), order, arrays.unigrams, keys);
    if (progress) progress(last - first);
  }
  std::sort(keys.begin(), keys.end());
  TableFiller filler(arrays);
  for (auto key = keys.begin(); key != keys.end();) {
    const auto next = std::find_if(key, keys.end(), [&](uint64_t other) { return other != *key; });
    filler.add(NgramKey::unpacked(*key), next - key);
    key = next;
  }
  filler.finish();
  return arrays;
}

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

void find_best(TableArrays& arrays, int64_t order) {
  const NgramLevel bigrams = arrays.bigrams.level();
  const auto contexts = std::ssize(bigrams.totals);
  const NgramCounts pairs(arrays.unigrams, bigrams, {});
  for (int64_t context = 0; context < contexts; ++context) {
    work_point();
    const int64_t seen = bigrams.totals[static_cast<size_t>(context)] > 0 ? context : -1;
    arrays.bigrams.best.push_back(best_of(pairs, bigrams, context, {.bigram = seen}, pairs.most_likely({})));
  }
  if (order < 3) return;
  const NgramLevel trigrams = arrays.trigrams.level();
  const NgramCounts counts(arrays.unigrams, arrays.bigrams.level(), trigrams);
  for (int64_t pair = 0; pair < std::ssize(bigrams.tokens); ++pair) {
    work_point();
    const auto at = static_cast<size_t>(pair);
    NgramNodes nodes = counts.find({.before = contexts, .last = bigrams.tokens[at]});
    const int64_t lower = counts.most_likely(nodes);
    if (trigrams.totals[at] > 0) nodes.trigram = pair;
    arrays.trigrams.best.push_back(best_of(counts, trigrams, pair, nodes, lower));
  }
}

void write_level(Hdf5Writer& output, const std::string& group, const NgramLevel& level) {
  output.write_array(group + "/children", level.children);
  output.write_array(group + "/totals", level.totals);
  output.write_array(group + "/best", level.best);
  output.write_array(group + "/tokens", level.tokens);
  output.write_array(group + "/counts", level.counts);
}

void write_table(const fs::path& out, const NgramInfo& info, const TableArrays& arrays) {
  Hdf5Writer output(out);
  output.set_format(kNgramFormat, info.provenance);
  output.set_attribute("/", "tokenizer_hash", info.tokenizer_hash);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "order", info.order);
  output.set_attribute("/", "examples", info.examples);
  output.set_attribute("/", "target_tokens", info.target_tokens);
  output.write_array("/unigrams/counts", std::span<const int32_t>(arrays.unigrams));
  if (info.order > 1) write_level(output, "/bigrams", arrays.bigrams.level());
  if (info.order > 2) write_level(output, "/trigrams", arrays.trigrams.level());
  output.finish();
}

void check_size(const fs::path& file, const CorpusInfo& corpus) {
  const auto require = [&](const std::string& what, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    throw UserError({.where = file.string(),
                     .what = what,
                     .expected = std::to_string(least) + " to " + std::to_string(most),
                     .found = std::to_string(value),
                     .hint = "n-gram tables pack a token into 21 bits and a count into 31"});
  };
  require("the vocabulary does not fit an n-gram table", corpus.vocabulary, 1, kMostNgramIds);
  require("the corpus has more target tokens than an n-gram table counts", corpus.target_tokens, 0,
          std::numeric_limits<int32_t>::max());
}

}  // namespace

Fields<NgramOptions> NgramOptions::fields() {
  return Fields<NgramOptions>("n-gram table options")
      .add("order", &NgramOptions::order, Range{1, 3}, Unit{"tokens"},
           "Longest n-gram counted: 1 unigrams, 2 bigrams, 3 trigrams; shorter ones are what it backs off to.");
}

std::string build_ngram_table(const fs::path& file, const NgramOptions& options, const fs::path& out,
                              const ProgressCallback& progress) {
  const Corpus corpus(file);
  check_size(file, corpus.info());
  TableArrays arrays = count_ngrams(corpus, options.order, progress);
  if (options.order > 1) find_best(arrays, options.order);
  NgramInfo info{.tokenizer_hash = corpus.info().tokenizer_hash,
                 .vocabulary = corpus.info().vocabulary,
                 .order = options.order,
                 .examples = corpus.info().examples,
                 .target_tokens = corpus.info().target_tokens,
                 .provenance = corpus.info().provenance};
  info.provenance["corpus"] = file.string();
  write_table(out, info, arrays);
  return fmt::format("{} examples, {} target tokens, {} different bigrams and {} trigrams", info.examples,
                     info.target_tokens, arrays.bigrams.tokens.size(), arrays.trigrams.tokens.size());
}

}  // namespace draftsmith::data
