// Note on a drafter of a task.
#pragma once

#include <string>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns what is known of the drafter of that name.
std::string drafter_note(const std::string& name, const DrafterResult& drafter);

}  // namespace draftsmith::evaluate
