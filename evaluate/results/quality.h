// Scores of outputs with their intervals, and their difference from a baseline's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Difference of a setting's leading score from its baseline's, by the paired bootstrap.
struct QualityDifference {
  double value = 0;
  metrics::Interval interval;
  double p_value = 1;
};

// Scores of a setting on a task.
struct Quality {
  std::vector<metrics::NamedScore> scores;
  std::optional<QualityDifference> difference;  // absent for baselines

  // Returns the score of that name, or nullptr.
  const metrics::NamedScore* find(const std::string& score) const;
};

}  // namespace draftsmith::evaluate
