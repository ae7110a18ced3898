#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>
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

constexpr int64_t kNgramTokenBits = 21;
static_assert(kMostNgramIds < (int64_t{1} << kNgramTokenBits));

// Returns one number for a context's number and the token behind it; numbers are ordered like both.
uint64_t packed_ngram(int64_t context, int64_t token) {
  return static_cast<uint64_t>(context << kNgramTokenBits | token);
}

// The arrays of one order while they are made (NgramLevel).
struct LevelArrays {
  std::vector<int64_t> children{};
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

// Calls visit(first, row) for each target of a corpus and what stands before it: a prompt's last token, or else the
// beginning, which is the id behind the vocabulary.
template <class Visit>
void visit_targets(const Corpus& corpus, const ProgressCallback& progress, const Visit& visit) {
  constexpr int64_t kExamplesAtOnce = int64_t{1} << 14;  // between two calls of `progress`
  const bool prompted = continues_prompts(corpus.info());
  const auto first_of = [&](std::span<const int32_t> source) {
    return prompted && !source.empty() ? int64_t{source.back()} : corpus.info().vocabulary;
  };
  for (int64_t first = 0; first < corpus.size(); first += kExamplesAtOnce) {
    const int64_t last = std::min(first + kExamplesAtOnce, corpus.size());
    work_point();
    for (int64_t i = first; i < last; ++i) visit(first_of(corpus.source(i)), corpus.target(i));
    if (progress) progress(last - first);
  }
}

// Counts packed n-grams by sorting.
LevelArrays count_level(std::vector<uint64_t>& ngrams, size_t contexts) {
  LevelArrays level{.children = std::vector<int64_t>(contexts + 1), .totals = std::vector<int32_t>(contexts)};
  std::sort(ngrams.begin(), ngrams.end());
  for (auto ngram = ngrams.begin(); ngram != ngrams.end();) {
    const auto next = std::find_if(ngram, ngrams.end(), [&](uint64_t other) { return other != *ngram; });
    const auto context = static_cast<size_t>(*ngram >> kNgramTokenBits);
    level.tokens.push_back(static_cast<int32_t>(*ngram & ((uint64_t{1} << kNgramTokenBits) - 1)));
    level.counts.push_back(static_cast<int32_t>(next - ngram));
    level.totals[context] += level.counts.back();
    ++level.children[context + 1];
    ngram = next;
  }
  std::partial_sum(level.children.begin(), level.children.end(), level.children.begin());
  return level;
}

// The context `vocabulary` is the beginning of rows. Contexts of trigrams are the bigrams, so these are counted before.
TableArrays count_ngrams(const Corpus& corpus, int64_t order, const ProgressCallback& progress) {
  const int64_t vocabulary = corpus.info().vocabulary;
  TableArrays arrays{.unigrams = std::vector<int32_t>(static_cast<size_t>(vocabulary))};
  std::vector<uint64_t> ngrams;
  if (order > 1) ngrams.reserve(static_cast<size_t>(corpus.info().target_tokens));
  visit_targets(corpus, progress, [&](int64_t last, std::span<const int32_t> row) {
    for (const int32_t token : row) {
      ++arrays.unigrams[static_cast<size_t>(token)];
      if (order > 1) ngrams.push_back(packed_ngram(last, token));
      last = token;
    }
  });
  if (order > 1) arrays.bigrams = count_level(ngrams, static_cast<size_t>(vocabulary) + 1);
  if (order < 3) return arrays;
  ngrams.clear();
  const NgramLevel bigrams = arrays.bigrams.level();
  visit_targets(corpus, {}, [&](int64_t before, std::span<const int32_t> row) {
    for (size_t i = 1; i < row.size(); ++i) {
      ngrams.push_back(packed_ngram(find_ngram(bigrams, before, row[i - 1]), row[i]));
      before = row[i - 1];
    }
  });
  arrays.trigrams = count_level(ngrams, arrays.bigrams.tokens.size());
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
    throw UserError({file.string(), what, std::to_string(least) + " to " + std::to_string(most), std::to_string(value),
                     "n-gram tables pack a token into 21 bits and a count into 31"});
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
