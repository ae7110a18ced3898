// Engagement curves of a suite, and how well drafters predict, teacher-forced (methods.md §3). The latter is
// alpha_forced on outputs of the model that decodes, and the quality of predictions of the task's own texts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/measured_task.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// ---- Points of engagement curves
// See infer/engagement.h.

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

// ---- Teacher-forced drafters

// Returns the settings of the task whose drafters are measured, the first one of each drafter. Where greedy decoding
// gives only empty outputs, there is nothing to measure. Reads task.records.
std::vector<Setting> forced_settings(const MeasuredTask& task);

// Returns the sampling of outputs at temperature 1 by each model that decodes for a drafter, with the suite's seed: the
// first forced_lines lines. The result refers to all arguments.
std::vector<Measurement> sampling_measurements(const MeasuredTask& task, const SuiteOptions& options, Engine& engine);

// Measures the drafters of forced_settings() on the first forced_lines lines: at temperature 0 on greedy outputs, at
// temperature 1 on those of sampling_measurements(), which must be in the store, and on task.forced_texts. Adds to
// task.forced, task.forced_sampled and task.predicted; a drafter that fails has an entry in task.failures instead.
// Errors: as measure_missing().
void measure_forced_alphas(const SuiteOptions& options, Engine& engine, MeasurementStore& store,
                           const SuiteContext& context, MeasuredTask& task);

}  // namespace draftsmith::evaluate
