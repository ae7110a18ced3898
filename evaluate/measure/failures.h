// Exceptions of measurements as messages: what fails is reported, and the evaluation goes on.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace draftsmith::evaluate {

// Returns what an exception says, in one line: the problems of an Error, LibTorch's message without its backtrace.
std::string failure_message(const std::exception& error);

// Calls `work`. Returns the message of the exception that it threw; nothing if it threw none. Errors: Interrupted.
std::optional<std::string> failure_of(const std::function<void()>& work);

}  // namespace draftsmith::evaluate
