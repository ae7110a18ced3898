// Choice among the settings of a group by their measurements on the task that they are chosen on.
#pragma once

#include <optional>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Returns the choice among the settings of the member's group that were measured on the task; nothing if none was.
std::optional<Choice> choose_in_group(const MeasuredTask& measured, const Setting& member, double max_drop);

}  // namespace draftsmith::evaluate
