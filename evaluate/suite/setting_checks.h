// What can be wrong with one run of a suite, found before anything is loaded.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Every point of a run's grid, found wrong before a recipe has trained for hours and comes to its evaluation. Adds
// problems at `where`; `drafters` are the suite's.
void check_run(const SettingGrid& run, const std::vector<DrafterOptions>& drafters, const std::string& where,
               Problems& problems);

}  // namespace draftsmith::evaluate
