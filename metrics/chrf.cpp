#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "metrics/metric.h"

namespace draftsmith::metrics {
namespace {

constexpr int64_t kCharacterOrder = 6;
constexpr double kRecallWeight = 4;  // beta 2, squared

using NgramLists = std::vector<std::vector<Ngram>>;  // by order

bool is_punctuation(char c) {
  return c > ' ' && c < 0x7F && !std::isalnum(static_cast<unsigned char>(c));
}

// Returns words, with one ASCII punctuation mark split off: a trailing mark if there is one, else a leading mark.
std::vector<std::string_view> words_and_punctuation(std::string_view text) {
  std::vector<std::string_view> result;
  for (const auto word : split_words(text)) {
    const bool single = word.size() == 1 || code_points(word).size() == 1;
    if (!single && is_punctuation(word.back())) {
      result.push_back(word.substr(0, word.size() - 1));
      result.push_back(word.substr(word.size() - 1));
    } else if (!single && is_punctuation(word.front())) {
      result.push_back(word.substr(0, 1));
      result.push_back(word.substr(1));
    } else {
      result.push_back(word);
    }
  }
  return result;
}

// Returns the n-grams of characters, then those of words.
NgramLists all_orders(std::string_view text, int64_t word_order, WordIds& ids) {
  std::vector<char32_t> visible = code_points(text);
  std::erase_if(visible, is_space);
  const std::vector<uint32_t> characters(visible.begin(), visible.end());
  NgramLists lists;
  for (size_t order = 1; order <= kCharacterOrder; ++order) lists.push_back(sorted_ngrams(characters, order));
  if (word_order == 0) return lists;
  const auto words = ids.ids(words_and_punctuation(text));
  for (size_t order = 1; order <= static_cast<size_t>(word_order); ++order)
    lists.push_back(sorted_ngrams(words, order));
  return lists;
}

std::vector<double> match_statistics(const NgramLists& hypothesis, const NgramLists& reference) {
  std::vector<double> statistics;
  for (size_t order = 0; order < hypothesis.size(); ++order) {
    // Skips an order for which the reference is too short.
    const size_t hypothesis_count = reference[order].empty() ? 0 : hypothesis[order].size();
    statistics.push_back(static_cast<double>(hypothesis_count));
    statistics.push_back(static_cast<double>(reference[order].size()));
    statistics.push_back(static_cast<double>(count_matches(hypothesis[order], reference[order])));
  }
  return statistics;
}

// Returns the score of summed statistics, 0..100.
double chrf_from_sums(std::span<const double> sums) {
  double precision = 0;
  double recall = 0;
  int64_t orders = 0;
  for (size_t at = 0; at + 2 < sums.size(); at += 3) {
    if (sums[at] <= 0 || sums[at + 1] <= 0) continue;
    precision += sums[at + 2] / sums[at];
    recall += sums[at + 2] / sums[at + 1];
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= static_cast<double>(orders);
  recall /= static_cast<double>(orders);
  return 100 * ((1 + kRecallWeight) * precision * recall / (kRecallWeight * precision + recall));
}

class Chrf : public Metric {
 public:
  explicit Chrf(const MetricOptions& options) : word_order_(options.chrf_word_order) {}

  std::string name() const override { return "chrf"; }
  std::vector<std::string> scores() const override { return {"chrf"}; }

  // For every order the numbers of n-grams in the hypothesis, in the best reference of the line, and in both.
  LineStatistics statistics(const Segments& segments) const override {
    if (segments.hypotheses.size() != segments.references.size()) {
      throw std::logic_error("chrf: numbers of lines differ");
    }
    LineStatistics result;
    result.width = 3 * (kCharacterOrder + word_order_);
    for (size_t line = 0; line < segments.hypotheses.size(); ++line) {
      WordIds ids;
      const auto hypothesis = all_orders(segments.hypotheses[line], word_order_, ids);
      std::vector<double> best;
      double best_score = -1;
      for (const auto& reference : segments.references[line]) {
        auto statistics = match_statistics(hypothesis, all_orders(reference, word_order_, ids));
        const double score = chrf_from_sums(statistics);
        if (score > best_score) best_score = score, best = std::move(statistics);
      }
      if (best.empty()) throw std::logic_error("chrf: a line without a reference");
      result.values.insert(result.values.end(), best.begin(), best.end());
    }
    return result;
  }

  double score(std::span<const double> sums, size_t /*which*/) const override { return chrf_from_sums(sums); }

  std::string signature(const References& references) const override {
    return fmt::format("nrefs:{}|case:mixed|eff:yes|nc:{}|nw:{}|space:no|version:{}", reference_count(references),
                       kCharacterOrder, word_order_, kMetricsVersion);
  }

  std::string text(std::span<const double> sums, const std::string& signature) const override {
    return fmt::format("chrF2{}|{} = {:.2f}\n", std::string(static_cast<size_t>(word_order_), '+'), signature,
                       chrf_from_sums(sums));
  }

 private:
  int64_t word_order_;
};

}  // namespace

std::unique_ptr<const Metric> make_chrf(const MetricOptions& options) {
  return std::make_unique<Chrf>(options);
}

}  // namespace draftsmith::metrics
