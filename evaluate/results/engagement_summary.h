// Scores of a suite's engagement curves.
#pragma once

#include <vector>

#include "evaluate/measure/engagement_points.h"
#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the curve of the measured points. The large model alone is the task's greedy baseline on the curve's lines,
// whose hypotheses must be there (score_hypotheses()).
EngagementResult engagement_result(const EngagementPrompts& curve, const std::vector<MeasuredEngagement>& points,
                                   const MeasuredTask& task, const SuiteOptions& options, const Engine& engine);

}  // namespace draftsmith::evaluate
