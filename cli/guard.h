// From exceptions to messages on standard error and exit codes: 2 for what the user can correct, 1 for a run that
// failed, 130 and 143 for a run that was asked to stop.
#pragma once

#include <functional>

namespace draftsmith::cli {

// Runs `work`; gives its exit code, or that of the exception it threw, whose message it prints.
int guarded(const std::function<int()>& work);

}  // namespace draftsmith::cli
