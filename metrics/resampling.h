// Uncertainty of corpus scores from sufficient statistics of each line: percentile bootstrap intervals and the paired
// bootstrap test between systems (Koehn 2004). A corpus score is a function of summed statistics, so a resample costs
// additions only.
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
  // Returns the column sums over all lines, [width].
  std::vector<double> sum() const;
};

// Corpus score from summed statistics [width].
using ScoreFunction = std::function<double(std::span<const double>)>;

struct ResamplingOptions {
  int64_t resamples = 1000;
  uint64_t seed = 12345;
};

struct Interval {
  double low = 0;
  double high = 0;
};

// Returns the value below which a share of at least one sorted value lies, with linear interpolation between them.
double percentile(const std::vector<double>& sorted, double share);

// Returns a percentile interval. Sorts `values`.
Interval percentile_interval(std::vector<double>& values, double confidence);

// Returns the bootstrap interval of the corpus score from lines drawn with replacement; [0,0] for an empty corpus, NaN
// for one line, which tells nothing of others.
Interval bootstrap_interval(const LineStatistics& statistics, const ScoreFunction& score,
                            const ResamplingOptions& options = {});

// Comparison of systems A and B on the same lines.
struct PairedTest {
  double score_b = 0;
  double difference = 0;  // A's score less B's
  Interval difference_interval{};
  double p_value = 1;  // two-sided, under the hypothesis that the systems do not differ
};

// Returns p = (1 + #{|d* - mean(d*)| >= |d|}) / (1 + resamples) with d* the difference on a resample of lines; of one
// line p is 1 and the interval NaN.
PairedTest paired_bootstrap(const LineStatistics& a, const LineStatistics& b, const ScoreFunction& score,
                            const ResamplingOptions& options = {});

}  // namespace draftsmith::metrics
