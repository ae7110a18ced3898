// What can be wrong with one run of a suite, found before anything is loaded.
#pragma once

#include <set>
#include <string>

#include "base/error.h"
#include "infer/evaluation_options.h"

namespace draftsmith::infer {

// Every point of a run's grid, found wrong before a recipe has trained for hours and comes to its evaluation. Adds
// problems at `where`; `lookups` are the names of drafters that are prompt look-up.
void check_run(const EvaluationRun& run, const std::set<std::string>& lookups, const std::string& where,
               Problems& problems);

}  // namespace draftsmith::infer
