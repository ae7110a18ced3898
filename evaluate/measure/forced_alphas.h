// alpha_forced of a setting's drafter on outputs of the model that decodes (methods.md §3).
#pragma once

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Measures the setting's drafter on the first forced_lines lines: at temperature 0 on greedy outputs, at temperature 1
// on outputs sampled at it with the suite's seed. Adds to task.forced and task.forced_sampled; task.sampled keeps the
// samples for other drafters. Errors: Interrupted.
void measure_forced_alphas(const Setting& setting, const SuiteOptions& options, Engine& engine, MeasuredTask& task);

}  // namespace draftsmith::evaluate
