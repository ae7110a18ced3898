// One metric with its settings, whichever it is: what suites, validation during training and `draftsmith score` use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

struct MetricOptions {
  std::string name = "bleu";
  std::string tokenize = "13a";
  bool stemmer = false;
  int64_t chrf_word_order = 0;
  static Fields<MetricOptions> fields();
};

// The score that a metric leads with: "bleu", "chrf" or "rougeL"; empty for "none".
std::string leading_score(const std::string& metric);

class Metric {
 public:
  // Throws UserError for an unknown name or tokenizer.
  explicit Metric(MetricOptions options);

  const MetricOptions& options() const { return options_; }
  // What it reports, the leading one first: {"bleu"}, {"chrf"}, {"rougeL", "rouge1", "rouge2", "rougeLsum"}, or nothing
  // for the metric "none" of tasks without references.
  const std::vector<std::string>& names() const { return names_; }
  // Size of "one point" of its scores: 1 on BLEU's and chrF's scale of 100, 0.01 for ROUGE.
  double point() const;

  bool scores() const { return !names_.empty(); }

  // Sufficient statistics of each line; none without scores. Throws std::logic_error when the numbers of lines differ.
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const;
  // The score called names()[which] of summed statistics; 0 without scores.
  double score(std::span<const double> sums, size_t which = 0) const;
  ScoreFunction function(size_t which = 0) const;
  // sacreBLEU's signature form; for ROUGE "nrefs:1|stemmer:no|lines:mean|version:...".
  std::string signature(const References& references) const;

 private:
  MetricOptions options_;
  std::vector<std::string> names_;
};

struct NamedScore {
  std::string name;
  double value = 0;
  Interval interval;  // bootstrap over lines
};

// Every score of the metric with its interval.
std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options = {});

}  // namespace draftsmith::metrics
