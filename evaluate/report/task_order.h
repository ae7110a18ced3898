// Order of tasks on pages: the tasks that a suite reports come first, then those on which its settings were chosen.
#pragma once

#include <string>
#include <vector>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the tasks in the order of pages. Tasks on which settings were chosen follow the others; within either group
// the results' own order stays.
std::vector<const TaskResult*> page_order(const Results& results);

// Returns a task's heading. That of a task on which settings were chosen says so.
std::string task_heading(const TaskResult& task);

// Returns what a task on which settings were chosen was for: the rows of other tasks that were chosen there, and that
// its numbers are not those to report. Empty for other tasks.
std::string task_purpose(const Results& results, const TaskResult& task);

}  // namespace draftsmith::evaluate
