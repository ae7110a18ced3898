// The end of a page: machine, models, command and options of the measurement.
#pragma once

#include <string>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the HTML of what is needed to measure the same again.
std::string environment_html(const Results& results);

}  // namespace draftsmith::evaluate
