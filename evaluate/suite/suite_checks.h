// Checks of a suite beyond the ranges of its fields, made before anything is loaded.
#pragma once

#include <string>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Adds the problems of the task at `where`: sources, references and metric must belong together.
void check_task(const TaskOptions& task, const std::string& where, Problems& problems);
// Adds the problems of the suite at `where`: names that runs use must be declared, and runs must make sense.
void check_suite(const SuiteOptions& options, const std::string& where, Problems& problems);

}  // namespace draftsmith::evaluate
