// Tasks of a suite before anything is measured: lines, prompts, and the rows that their results will have.
#pragma once

#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/results/measured_task.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Checks all settings (expand_settings()) and reads all tasks, before anything is run or written. Returns the tasks,
// those on which settings are chosen first; they refer to `suite`. Errors: UserError with all problems of the settings,
// or with those of a task.
std::vector<MeasuredTask> prepare_tasks(const SuiteOptions& suite, const std::vector<Setting>& settings,
                                        Engine& engine);

}  // namespace draftsmith::evaluate
