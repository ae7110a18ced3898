// Tells readers of a table that its speeds are those of a busy machine.
#pragma once

#include <string>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns a warning that other processes were at work during the evaluation; empty if they used little of the
// processors, or that is not recorded.
std::string busy_note(const Results& results);

}  // namespace draftsmith::evaluate
