// Uncertainty of corpus scores from per-line sufficient statistics: percentile bootstrap intervals (Koehn 2004) and two
// paired tests between systems, bootstrap and approximate randomisation (Riezler and Maxwell 2005). A corpus score is a
// function of the sums of its lines' statistics, so a resample costs additions only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace draftsmith::metrics {

// Statistics of each line, row-major [lines,width].
struct LineStatistics {
  int64_t width = 0;
  std::vector<double> values;

  int64_t lines() const { return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width; }
  std::span<const double> line(int64_t index) const;
  // Column sums over all lines, [width].
  std::vector<double> sum() const;
};

// Corpus score from summed statistics [width].
using ScoreFunction = std::function<double(std::span<const double>)>;

struct ResamplingOptions {
  int64_t resamples = 1000;
  uint64_t seed = 12345;
  double confidence = 0.95;
};

struct Interval {
  double low = 0;
  double high = 0;
};

// Percentile interval of values (linear interpolation between order statistics). `values` is sorted by the call.
Interval percentile_interval(std::vector<double>& values, double confidence);

// Bootstrap interval of the corpus score; lines are drawn with replacement. An empty corpus gives [0,0].
Interval bootstrap_interval(const LineStatistics& statistics, const ScoreFunction& score,
                            const ResamplingOptions& options = {});

// System A against system B on the same lines.
struct PairedTest {
  double score_a = 0;
  double score_b = 0;
  double difference = 0;         // score_a - score_b
  Interval difference_interval;  // bootstrap only; [0,0] for randomisation
  double p_value = 1;            // two-sided, for "the systems do not differ"
};

// p = (1 + #{|d* - mean(d*)| >= |d|}) / (1 + resamples) with d* the difference on a resample of lines.
PairedTest paired_bootstrap(const LineStatistics& a, const LineStatistics& b, const ScoreFunction& score,
                            const ResamplingOptions& options = {});

// p = (1 + #{|d*| >= |d|}) / (1 + resamples) with d* the difference after swapping each line with probability ½.
PairedTest paired_randomization(const LineStatistics& a, const LineStatistics& b, const ScoreFunction& score,
                                const ResamplingOptions& options = {.resamples = 10000});

}  // namespace draftsmith::metrics
