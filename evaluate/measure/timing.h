// Times of single steps, and timing of all settings of a task, by one process while all others of its job wait.
// Finished turns are kept on disk, and an interrupted evaluation continues after the last one.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evaluate/measure/counting_pass.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/measured_task.h"
#include "infer/costs/step_costs.h"

namespace draftsmith::evaluate {

// ---- Times of single steps
// Predictions of the speedup are made of them (evaluate/theory).

// Measures the steps of the task's drafters, unless SuiteOptions::calibrate is off. Adds to task.costs and
// task.drafted_for. Where greedy decoding gives only empty outputs, there is nothing to measure. A setting whose steps
// fail has an entry in task.failures instead. Errors: Interrupted.
void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task);

// ---- Typical lines
// Step times are measured on them, since the time of a step grows with the text before it.

// Returns the lines whose outputs have the lengths of the quartiles, shortest first: up to three different ones, none
// with an empty output. Empty if all outputs are.
std::vector<size_t> typical_lines(const SettingRecords& greedy);

// Returns the median of each time over measurements of equal widths. Errors: std::logic_error without any.
infer::StepCosts median_costs(std::span<const infer::StepCosts> measured);

// ---- Timing of settings

// Times all settings on the timed lines and adds the times to the records of the counting pass. Settings take turns of
// a few batches, and each round of turns begins with another setting, so that drifts of the machine affect all alike. A
// turn begins with a few untimed tokens, which hide what ran before. Returns the messages of settings that failed, by
// label; `records` lacks them, and the others go on. Errors: Interrupted, and those of the greedy baseline.
std::map<std::string, std::string> time_task(const MeasureTask& task, const SuiteOptions& options, Engine& engine,
                                             MeasurementStore& store, const SuiteContext& context,
                                             TaskRecords& records);

}  // namespace draftsmith::evaluate
