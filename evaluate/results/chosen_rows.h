// Rows of a task for the settings that were chosen on other tasks.
#pragma once

#include <vector>

#include "evaluate/results/measured_task.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {

// Adds rows for the settings chosen on the choosing tasks among `measured`. Two rows with the same setting share its
// measurement. A group without a measured setting becomes a failure of the task.
void add_chosen_rows(const std::vector<Setting>& settings, const std::vector<MeasuredTask>& measured,
                     MeasuredTask& task);

}  // namespace draftsmith::evaluate
