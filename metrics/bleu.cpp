#include "metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "metrics/bleu_tokenizers.h"
#include "metrics/text.h"

namespace draftsmith::metrics {
namespace {

using WordNgram = std::array<uint32_t, kBleuOrder>;
using NgramsByOrder = std::array<std::vector<WordNgram>, kBleuOrder>;

NgramsByOrder sorted_ngrams(const std::vector<uint32_t>& words) {
  NgramsByOrder result;
  for (size_t order = 1; order <= kBleuOrder; ++order) {
    auto& ngrams = result[order - 1];
    for (size_t begin = 0; begin + order <= words.size(); ++begin) {
      WordNgram ngram{};
      std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(begin), order, ngram.begin());
      ngrams.push_back(ngram);
    }
    std::sort(ngrams.begin(), ngrams.end());
  }
  return result;
}

// Counts matches of the hypothesis's n-grams, each clipped to its largest count in any one reference.
int64_t clipped_matches(const std::vector<WordNgram>& hypothesis, const std::vector<NgramsByOrder>& references,
                        size_t order) {
  int64_t matches = 0;
  for (auto first = hypothesis.begin(); first != hypothesis.end();) {
    const auto last = std::upper_bound(first, hypothesis.end(), *first);
    int64_t allowed = 0;
    for (const auto& reference : references) allowed = std::max(allowed, count_sorted(reference[order], *first));
    matches += std::min<int64_t>(last - first, allowed);
    first = last;
  }
  return matches;
}

// Returns the reference length nearest to the hypothesis's length, the shorter one of a tie.
int64_t closest_length(int64_t hypothesis, const std::vector<int64_t>& references) {
  int64_t closest = references.front();
  for (const int64_t length : references) {
    const int64_t distance = std::abs(length - hypothesis);
    const int64_t best = std::abs(closest - hypothesis);
    if (distance < best || (distance == best && length < closest)) closest = length;
  }
  return closest;
}

void add_line_statistics(const std::string& hypothesis, const std::vector<std::string>& references,
                         const BleuTokenizer& tokenizer, std::vector<double>& values) {
  WordIds ids;
  const auto words = ids.ids(tokenizer.tokens(hypothesis));
  std::vector<NgramsByOrder> reference_ngrams;
  std::vector<int64_t> lengths;
  for (const auto& reference : references) {
    const auto reference_words = ids.ids(tokenizer.tokens(reference));
    lengths.push_back(static_cast<int64_t>(reference_words.size()));
    reference_ngrams.push_back(sorted_ngrams(reference_words));
  }
  const auto length = static_cast<int64_t>(words.size());
  values.push_back(static_cast<double>(length));
  values.push_back(static_cast<double>(closest_length(length, lengths)));
  const auto ngrams = sorted_ngrams(words);
  for (size_t order = 0; order < kBleuOrder; ++order) {
    values.push_back(static_cast<double>(clipped_matches(ngrams[order], reference_ngrams, order)));
  }
  for (size_t order = 0; order < kBleuOrder; ++order) values.push_back(static_cast<double>(ngrams[order].size()));
}

}  // namespace

LineStatistics bleu_statistics(const std::vector<std::string>& hypotheses, const References& references,
                               const BleuTokenizer& tokenizer) {
  if (hypotheses.size() != references.size()) throw std::logic_error("bleu: numbers of lines differ");
  LineStatistics statistics;
  statistics.width = 2 + 2 * static_cast<int64_t>(kBleuOrder);
  statistics.values.reserve(hypotheses.size() * static_cast<size_t>(statistics.width));
  for (size_t line = 0; line < hypotheses.size(); ++line) {
    if (references[line].empty()) throw std::logic_error("bleu: a line without a reference");
    add_line_statistics(hypotheses[line], references[line], tokenizer, statistics.values);
  }
  return statistics;
}

BleuScore bleu_from_sums(std::span<const double> sums) {
  BleuScore result;
  result.hypothesis_length = static_cast<int64_t>(sums[0]);
  result.reference_length = static_cast<int64_t>(sums[1]);
  bool any = false;
  for (size_t order = 0; order < kBleuOrder; ++order) {
    result.correct[order] = static_cast<int64_t>(sums[2 + order]);
    result.total[order] = static_cast<int64_t>(sums[2 + kBleuOrder + order]);
    any = any || result.correct[order] > 0;
  }
  const double hypothesis_length = sums[0];
  const double reference_length = sums[1];
  result.brevity_penalty = 1;
  if (hypothesis_length < reference_length) {
    result.brevity_penalty = hypothesis_length > 0 ? std::exp(1 - reference_length / hypothesis_length) : 0;
  }
  if (!any) return result;

  double halvings = 1;  // exponential smoothing: the k-th order without a match counts as 2^-k matches
  double log_sum = 0;
  for (size_t order = 0; order < kBleuOrder; ++order) {
    const auto correct = static_cast<double>(result.correct[order]);
    const auto total = static_cast<double>(result.total[order]);
    if (total == 0) return result;  // no n-gram of this order in the whole corpus: effective order is off, so BLEU is 0
    if (correct == 0) halvings *= 2;
    result.precisions[order] = correct == 0 ? 100 / (halvings * total) : 100 * correct / total;
    log_sum += std::log(result.precisions[order]);
  }
  result.score = result.brevity_penalty * std::exp(log_sum / static_cast<double>(kBleuOrder));
  return result;
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const References& references,
                      const BleuTokenizer& tokenizer) {
  return bleu_from_sums(bleu_statistics(hypotheses, references, tokenizer).sum());
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const References& references) {
  return corpus_bleu(hypotheses, references, *make_bleu_tokenizer("13a"));
}

std::string reference_count(const References& references) {
  if (references.empty()) return "0";
  const size_t count = references.front().size();
  const bool same =
      std::all_of(references.begin(), references.end(), [&](const auto& line) { return line.size() == count; });
  return same ? std::to_string(count) : "var";
}

std::string bleu_signature(const References& references, const BleuTokenizer& tokenizer) {
  return fmt::format("nrefs:{}|case:mixed|eff:no|tok:{}|smooth:exp|version:{}", reference_count(references),
                     tokenizer.signature(), kMetricsVersion);
}

std::string to_string(const BleuScore& score) {
  const double ratio = score.reference_length == 0
                           ? 0
                           : static_cast<double>(score.hypothesis_length) / static_cast<double>(score.reference_length);
  return fmt::format("{:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
                     score.score, score.precisions[0], score.precisions[1], score.precisions[2], score.precisions[3],
                     score.brevity_penalty, ratio, score.hypothesis_length, score.reference_length);
}

Fields<BleuOptions> BleuOptions::fields() {
  return Fields<BleuOptions>("BLEU options")
      .add("tokenize", &BleuOptions::tokenize, Choices(bleu_tokenizer_names()),
           "BLEU's tokenizer, as in sacreBLEU. Without it: zh for references in Chinese, char for Japanese, as the "
           "file's ending or the direction says; else 13a.");
}

Bleu::Bleu(const Options& options) : tokenizer_(make_bleu_tokenizer(options.tokenize.value_or("13a"))) {}

std::vector<std::string> Bleu::scores() const {
  return {kName};
}

LineStatistics Bleu::statistics(const std::vector<std::string>& hypotheses, const References& references) const {
  return bleu_statistics(hypotheses, references, *tokenizer_);
}

double Bleu::score(std::span<const double> sums, size_t /*which*/) const {
  return bleu_from_sums(sums).score;
}

std::string Bleu::signature(const References& references) const {
  return bleu_signature(references, *tokenizer_);
}

std::string Bleu::text(std::span<const double> sums, const std::string& signature) const {
  return fmt::format("BLEU|{} = {}\n", signature, to_string(bleu_from_sums(sums)));
}

nlohmann::ordered_json Bleu::details(std::span<const double> sums) const {
  const BleuScore bleu = bleu_from_sums(sums);
  return {{"precisions", bleu.precisions},
          {"correct", bleu.correct},
          {"total", bleu.total},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_length", bleu.hypothesis_length},
          {"reference_length", bleu.reference_length}};
}

}  // namespace draftsmith::metrics
