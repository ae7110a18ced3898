// Turns exceptions into messages on standard error and exit codes: 2 if the user can correct the error, 1 if the run
// failed, 130 and 143 if the run was asked to stop.
#pragma once

#include <functional>

namespace draftsmith::cli {

// Runs `work` and returns its exit code. Prints the message of an exception and returns the exit code of it.
int guarded(const std::function<int()>& work);

}  // namespace draftsmith::cli
