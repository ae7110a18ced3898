// Work of a setting for one token, beside that of greedy decoding.
#pragma once

#include <optional>

#include "evaluate/results/measured_task.h"
#include "evaluate/results/work_result.h"

namespace draftsmith::evaluate {

// Returns the work of a setting on all lines of the task that it decoded; nothing if it put out nothing, or if the
// engine does not know the shapes of its models.
std::optional<WorkResult> work_result(const MeasuredTask& measured, const Setting& setting, Engine& engine);

}  // namespace draftsmith::evaluate
