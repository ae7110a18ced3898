#include "metrics/metric.h"

#include <algorithm>

namespace draftsmith::metrics {

ScoreFunction Metric::function(size_t which) const {
  return [this, which](std::span<const double> sums) { return score(sums, which); };
}

std::string Metric::line_of(const std::string& text) const {
  std::string line = text;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

std::vector<NamedScore> all_scores(const Metric& metric, const LineStatistics& statistics,
                                   const ResamplingOptions& options) {
  std::vector<NamedScore> scores;
  const auto sums = statistics.sum();
  for (const std::string& name : metric.scores()) {
    const size_t which = scores.size();
    scores.push_back(
        {name, metric.score(sums, which), bootstrap_interval(statistics, metric.function(which), options)});
  }
  return scores;
}

}  // namespace draftsmith::metrics
