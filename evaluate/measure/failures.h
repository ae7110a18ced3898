// Exceptions of measurements as messages: what fails is reported, and the evaluation goes on.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace draftsmith::evaluate {

// Calls `work`. Returns what the exception that it threw says, in one line; nothing if it threw none. Errors:
// Interrupted.
std::optional<std::string> failure_of(const std::function<void()>& work);

}  // namespace draftsmith::evaluate
