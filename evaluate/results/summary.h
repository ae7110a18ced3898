// Summary of a task's records: quality with intervals, speed, acceptance, prediction, checks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/results/measured_task.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the file of a row's hypotheses, relative to results.json.
std::string hypotheses_file(const TaskOptions& task, const SettingRow& row);

// Returns the results of the task.
TaskResult summarize_task(const MeasuredTask& measured, const SuiteOptions& options, Engine& engine);

}  // namespace draftsmith::evaluate
