// What a table of settings shows, in words.
#pragma once

#include <string>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

// Returns a sentence that names the fastest setting and the fastest one with greedy decoding's own output; empty
// without speedups of drafting. Drafters that decode alone, and settings with a measurement error, are left out.
std::string headline_note(const TaskResult& task);

// Returns a warning that other processes were at work during the evaluation; empty if they used little of the
// processors, or that is not recorded.
std::string busy_note(const Results& results);

}  // namespace draftsmith::evaluate
