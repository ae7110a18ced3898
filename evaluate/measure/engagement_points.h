// Points of a suite's engagement curves (infer/engagement.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/suite/engagement_options.h"

namespace draftsmith::evaluate {

// Curve with the prompts that it is measured on.
struct EngagementPrompts {
  const EngagementTable& table;
  std::string task;
  std::string key;  // MeasuredTask::key
  std::span<const Prompt> prompts;
  int64_t max_new_tokens = 0;
  int64_t batch_size = 1;
};

// Outputs of a policy at a threshold.
struct MeasuredEngagement {
  infer::EngagementPolicy policy = infer::EngagementPolicy::kOracle;
  double threshold = 0;
  infer::EngagedOutputs outputs = {};
};

// Returns the points of each curve, the oracle's before those of fallback, in the order of the thresholds.
// Errors: as measure_missing().
std::vector<std::vector<MeasuredEngagement>> measure_engagement(const std::vector<EngagementPrompts>& curves,
                                                                Engine& engine, MeasurementStore& store,
                                                                const SuiteContext& context);

}  // namespace draftsmith::evaluate
