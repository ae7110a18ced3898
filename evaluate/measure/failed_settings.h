// Settings that failed on a task, and what their failure takes with it.
#pragma once

#include <map>
#include <string>

#include "evaluate/results/measured_task.h"

namespace draftsmith::evaluate {

// Removes the rows and records of settings that `failed` (message by label), and of settings that are compared with
// them. Adds all of them to task.failures.
void remove_failed(const std::map<std::string, std::string>& failed, const std::string& during, MeasuredTask& task);

}  // namespace draftsmith::evaluate
