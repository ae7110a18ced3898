// A metric with its settings, for suites, validation during training and `draftsmith score`.
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

// Returns a metric's main score: "bleu", "chrf" or "rougeL"; empty for "none".
std::string leading_score(const std::string& metric);

class Metric {
 public:
  // Throws UserError for an unknown name or tokenizer.
  explicit Metric(MetricOptions options);

  const MetricOptions& options() const { return options_; }
  // Returns the names of its scores, the main score first: {"bleu"}, {"chrf"}, {"rougeL", "rouge1", "rouge2",
  // "rougeLsum"}, or nothing for the metric "none" of tasks without references.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the size of "one point": 1 on the scale of 100 of BLEU and chrF, 0.01 for ROUGE.
  double point() const;

  bool scores() const { return !names_.empty(); }

  // Returns sufficient statistics of each line; none for "none". Throws std::logic_error if the numbers of lines
  // differ.
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const;
  // Returns the score names()[which] of summed statistics; 0 for "none".
  double score(std::span<const double> sums, size_t which = 0) const;
  ScoreFunction function(size_t which = 0) const;
  // Returns the signature in sacreBLEU's form; for ROUGE "nrefs:1|stemmer:no|lines:mean|version:...".
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

// Returns every score of the metric with its interval.
std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options = {});

}  // namespace draftsmith::metrics
