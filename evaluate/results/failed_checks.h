// Failed checks of a suite's measurements: settings and lines that failed, speeds beyond their bounds, and lossless
// settings that are not.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns a problem for each failed check. `file` is the results.json that messages name.
std::vector<Problem> failed_checks(const Results& results, const std::string& file);

}  // namespace draftsmith::evaluate
