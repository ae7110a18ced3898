#include "data/ngrams/ngram_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace draftsmith::data {
namespace {

bool was_seen(const NgramLevel& level, int64_t context) {
  return context >= 0 && level.totals[static_cast<size_t>(context)] > 0;
}

void check_context(const Hdf5Reader& input, const std::string& group, const NgramLevel& level, int64_t context,
                   int64_t vocabulary) {
  const auto at = static_cast<size_t>(context);
  const auto name = [&](const char* array, int64_t i) { return fmt::format("{}/{}[{}]", group, array, i); };
  // Composes an error's text only if there is an error.
  int64_t least = 0;  // tokens ascend
  int64_t total = 0;
  for (int64_t i = level.children[at]; i < level.children[at + 1]; ++i) {
    const int64_t token = level.tokens[static_cast<size_t>(i)];
    const int64_t count = level.counts[static_cast<size_t>(i)];
    if (token < least || token >= vocabulary) input.check_range(name("tokens", i), token, least, vocabulary - 1);
    if (count < 1) input.check_range(name("counts", i), count, 1, INT32_MAX);
    least = token + 1;
    total += count;
  }
  const int64_t said = level.totals[at];
  if (said != total) input.check_equal(name("totals", context), total, said);
  const int64_t best = level.best[at];
  if (best < 0 || best >= vocabulary) input.check_range(name("best", context), best, 0, vocabulary - 1);
}

NgramLevel read_level(const Hdf5Reader& input, const std::string& group, int64_t contexts, int64_t vocabulary) {
  NgramLevel level;
  level.tokens = input.values<int32_t>(group + "/tokens", {-1});
  const auto size = static_cast<int64_t>(level.tokens.size());
  level.counts = input.values<int32_t>(group + "/counts", {size});
  level.children = input.offsets(group + "/children", contexts, size);
  level.totals = input.values<int32_t>(group + "/totals", {contexts});
  level.best = input.values<int32_t>(group + "/best", {contexts});
  for (int64_t context = 0; context < contexts; ++context) check_context(input, group, level, context, vocabulary);
  return level;
}

}  // namespace

int64_t find_ngram(const NgramLevel& level, int64_t context, int64_t token) {
  const auto at = static_cast<size_t>(context);
  const auto begin = level.tokens.begin() + level.children[at], end = level.tokens.begin() + level.children[at + 1];
  const auto found = std::lower_bound(begin, end, token);
  return found != end && *found == token ? found - level.tokens.begin() : -1;
}

NgramCounts::NgramCounts(std::span<const int32_t> unigrams, const NgramLevel& bigrams, const NgramLevel& trigrams)
    : unigrams_(unigrams), bigrams_(bigrams), trigrams_(trigrams) {
  for (const int32_t count : unigrams) {
    total_ += count;
    types_ += count > 0 ? 1 : 0;
  }
  best_ = std::max_element(unigrams.begin(), unigrams.end()) - unigrams.begin();
  log_unigrams_.reserve(unigrams.size());
  for (int64_t token = 0; token < vocabulary(); ++token) {
    log_unigrams_.push_back(static_cast<float>(std::log(unigram_probability(token))));
  }
}

double NgramCounts::unigram_probability(int64_t token) const {
  const auto ids = static_cast<double>(vocabulary());
  if (total_ == 0) return 1 / ids;
  return (static_cast<double>(unigrams_[static_cast<size_t>(token)]) + types_ / ids) / (total_ + types_);
}

double NgramCounts::lower_weight(const NgramLevel& level, int64_t context) {
  const auto at = static_cast<size_t>(context);
  const auto types = static_cast<double>(level.children[at + 1] - level.children[at]);
  return types / (static_cast<double>(level.totals[at]) + types);
}

double NgramCounts::interpolate(const NgramLevel& level, int64_t context, int64_t token, double lower) {
  const auto at = static_cast<size_t>(context);
  const auto types = static_cast<double>(level.children[at + 1] - level.children[at]);
  const int64_t found = find_ngram(level, context, token);
  const double count = found < 0 ? 0 : static_cast<double>(level.counts[static_cast<size_t>(found)]);
  return (count + types * lower) / (static_cast<double>(level.totals[at]) + types);
}

NgramNodes NgramCounts::find(const NgramContext& context) const {
  NgramNodes nodes;
  const auto known = [&](int64_t token) { return token < vocabulary(); };
  const auto place = [&](int64_t token) { return token < 0 ? vocabulary() : token; };  // of a context of bigrams_
  if (bigrams_.totals.empty() || !known(context.last)) return nodes;
  if (was_seen(bigrams_, place(context.last))) nodes.bigram = place(context.last);
  if (trigrams_.totals.empty() || context.last < 0 || !known(context.before)) return nodes;
  const int64_t pair = find_ngram(bigrams_, place(context.before), context.last);
  if (was_seen(trigrams_, pair)) nodes.trigram = pair;
  return nodes;
}

int64_t NgramCounts::most_likely(const NgramNodes& nodes) const {
  if (nodes.trigram >= 0) return trigrams_.best[static_cast<size_t>(nodes.trigram)];
  return nodes.bigram >= 0 ? bigrams_.best[static_cast<size_t>(nodes.bigram)] : best_;
}

double NgramCounts::probability(const NgramNodes& nodes, int64_t token) const {
  double q = unigram_probability(token);
  if (nodes.bigram >= 0) q = interpolate(bigrams_, nodes.bigram, token, q);
  if (nodes.trigram >= 0) q = interpolate(trigrams_, nodes.trigram, token, q);
  return q;
}

// Scales the unigram's probabilities of all tokens by one factor, then sets the few tokens that were seen in the
// context one by one, the tokens of the longest context last.
void NgramCounts::log_probabilities(const NgramNodes& nodes, std::span<float> out) const {
  const double trigram_weight = nodes.trigram >= 0 ? lower_weight(trigrams_, nodes.trigram) : 1;
  const double bigram_weight = nodes.bigram >= 0 ? lower_weight(bigrams_, nodes.bigram) : 1;
  const auto shift = static_cast<float>(std::log(trigram_weight * bigram_weight));
  std::transform(log_unigrams_.begin(), log_unigrams_.end(), out.begin(), [shift](float q) { return q + shift; });
  if (nodes.bigram >= 0) {
    const auto at = static_cast<size_t>(nodes.bigram);
    const double share = bigram_weight / static_cast<double>(bigrams_.children[at + 1] - bigrams_.children[at]);
    for (auto i = static_cast<size_t>(bigrams_.children[at]); i < static_cast<size_t>(bigrams_.children[at + 1]); ++i) {
      const int64_t token = bigrams_.tokens[i];
      const double q = static_cast<double>(bigrams_.counts[i]) * share + bigram_weight * unigram_probability(token);
      out[static_cast<size_t>(token)] = static_cast<float>(std::log(trigram_weight * q));
    }
  }
  if (nodes.trigram >= 0) {
    const auto at = static_cast<size_t>(nodes.trigram);
    for (auto i = trigrams_.children[at]; i < trigrams_.children[at + 1]; ++i) {
      const int64_t token = trigrams_.tokens[static_cast<size_t>(i)];
      out[static_cast<size_t>(token)] = static_cast<float>(std::log(probability(nodes, token)));
    }
  }
}

NgramTable::NgramTable(const std::filesystem::path& file) : file_(file) {
  const Hdf5Reader input(file, kNgramFormat);
  mapping_ = input.mapping();
  info_ = {.tokenizer_hash = input.text("tokenizer_hash"),
           .vocabulary = input.number("vocabulary", 1, kMostNgramIds),
           .order = input.number("order", 1, 3),
           .examples = input.number("examples", 0, INT64_MAX),
           .target_tokens = input.number("target_tokens", 0, INT64_MAX),
           .provenance = input.provenance()};
  const auto unigrams = input.values<int32_t>("/unigrams/counts", {info_.vocabulary});
  int64_t sum = 0;
  for (size_t i = 0; i < unigrams.size(); ++i) {
    if (unigrams[i] < 0) input.check_range(fmt::format("/unigrams/counts[{}]", i), unigrams[i], 0, INT32_MAX);
    sum += unigrams[i];
  }
  input.check_equal("sum of /unigrams/counts", info_.target_tokens, sum);
  NgramLevel bigrams;
  NgramLevel trigrams;
  if (info_.order > 1) bigrams = read_level(input, "/bigrams", info_.vocabulary + 1, info_.vocabulary);
  if (info_.order > 2) {
    trigrams = read_level(input, "/trigrams", static_cast<int64_t>(bigrams.tokens.size()), info_.vocabulary);
  }
  counts_ = NgramCounts(unigrams, bigrams, trigrams);
}

std::string describe_ngram_table(const NgramTable& table) {
  const NgramInfo& info = table.info();
  std::string text = fmt::format("n-gram table of order {}: {} examples, {} target tokens\n", info.order, info.examples,
                                 info.target_tokens);
  text += fmt::format("  vocabulary {}, tokenizer sha256 {}\n", info.vocabulary, info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, value);
  return text;
}

}  // namespace draftsmith::data
