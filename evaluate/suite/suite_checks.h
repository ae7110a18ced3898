// What can be wrong with a suite beyond the ranges of its fields, found before anything is loaded.
#pragma once

#include <string>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Each adds its problems; `where` names the struct in the suite.
void check_task(const TaskOptions& task, const std::string& where, Problems& problems);
// Names that runs use must be declared, and runs must make sense.
void check_suite(const SuiteOptions& options, const std::string& where, Problems& problems);

}  // namespace draftsmith::evaluate
