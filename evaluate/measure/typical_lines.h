// Lines of a task on which step times are measured, since the time of a step grows with the text before it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "evaluate/measure/records.h"
#include "infer/costs/step_times.h"

namespace draftsmith::evaluate {

// Returns the lines whose outputs have the lengths of the quartiles, shortest first: up to three different ones, none
// with an empty output. Empty if all outputs are.
std::vector<size_t> typical_lines(const SettingRecords& greedy);

// Returns the median of each time over measurements of equal widths. Errors: std::logic_error without any.
infer::StepCosts median_costs(std::span<const infer::StepCosts> measured);

}  // namespace draftsmith::evaluate
