#include "metrics/metric.h"

#include <algorithm>

#include <fmt/format.h>

#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/rouge.h"

namespace draftsmith::metrics {
namespace {

const std::vector<std::string>& rouge_names() {
  static const std::vector<std::string> kNames{"rougeL", "rouge1", "rouge2", "rougeLsum"};
  return kNames;
}

size_t rouge_type(size_t which) {
  const auto* found = std::find(kRougeNames.begin(), kRougeNames.end(), rouge_names().at(which));
  return static_cast<size_t>(found - kRougeNames.begin());
}

std::vector<std::string> names_of(const std::string& metric) {
  if (metric == "rouge") return rouge_names();
  if (metric == "bleu" || metric == "chrf") return {metric};
  if (metric == "none") return {};
  throw UserError({.where = "metric",
                   .what = "unknown metric",
                   .expected = "bleu, chrf, rouge or none",
                   .found = metric,
                   .hint = ""});
}

}  // namespace

std::string leading_score(const std::string& metric) {
  const auto names = names_of(metric);
  return names.empty() ? "" : names.front();
}

Fields<MetricOptions> MetricOptions::fields() {
  return Fields<MetricOptions>("metric options")
      .add("name", &MetricOptions::name, Choices{"bleu", "chrf", "rouge", "none"},
           "Metric of the task; none: the task has no references and measures speed only.")
      .add("tokenize", &MetricOptions::tokenize, Choices{"13a", "none", "char"}, "BLEU's tokenizer, as in sacreBLEU.")
      .add("stemmer", &MetricOptions::stemmer, "ROUGE: compare Porter stems, like use_stemmer of rouge_score.")
      .add("chrf_word_order", &MetricOptions::chrf_word_order, Range{0, 2},
           "Highest order of the word n-grams of chrF; 0: chrF, 2: chrF++.");
}

Metric::Metric(MetricOptions options) : options_(std::move(options)), names_(names_of(options_.name)) {
  bleu_tokenizer(options_.tokenize);
}

double Metric::point() const {
  return options_.name == "rouge" ? 0.01 : 1;
}

LineStatistics Metric::statistics(const std::vector<std::string>& hypotheses, const References& references) const {
  if (!scores()) return {};
  if (options_.name == "bleu") return bleu_statistics(hypotheses, references, bleu_tokenizer(options_.tokenize));
  if (options_.name == "chrf") {
    return chrf_statistics(hypotheses, references, {.word_order = options_.chrf_word_order});
  }
  return rouge_statistics(hypotheses, references, {.stemmer = options_.stemmer});
}

double Metric::score(std::span<const double> sums, size_t which) const {
  if (!scores()) return 0;
  if (options_.name == "bleu") return bleu_from_sums(sums).score;
  if (options_.name == "chrf") return chrf_from_sums(sums, {.word_order = options_.chrf_word_order});
  return rouge_from_sums(sums).at(rouge_type(which)).f1;
}

ScoreFunction Metric::function(size_t which) const {
  return [metric = *this, which](std::span<const double> sums) { return metric.score(sums, which); };
}

std::string Metric::signature(const References& references) const {
  if (!scores()) return "no references: nothing is scored";
  if (options_.name == "bleu") return bleu_signature(references, bleu_tokenizer(options_.tokenize));
  if (options_.name == "chrf") return chrf_signature(references, {.word_order = options_.chrf_word_order});
  return fmt::format("nrefs:{}|stemmer:{}|lines:mean|version:{}", reference_count(references),
                     options_.stemmer ? "yes" : "no", kMetricsVersion);
}

std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options) {
  std::vector<NamedScore> scores;
  const auto sums = statistics.sum();
  for (size_t which = 0; which < metric.names().size(); ++which) {
    scores.push_back({metric.names()[which], metric.score(sums, which),
                      bootstrap_interval(statistics, metric.function(which), options)});
  }
  return scores;
}

}  // namespace draftsmith::metrics
