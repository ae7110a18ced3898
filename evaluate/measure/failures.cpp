#include "evaluate/measure/failures.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kLongestMessage = 400;  // bytes: messages of memory managers go on with advice

std::string one_line(std::string text) {
  if (text.size() > kLongestMessage) text = text.substr(0, text.rfind(' ', kLongestMessage)) + " ...";
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string text_of(const Problem& problem) {
  std::string text = problem.where.empty() ? problem.what : problem.where + ": " + problem.what;
  if (!problem.expected.empty()) text += ", expected " + problem.expected;
  if (!problem.found.empty()) text += ", found " + problem.found;
  return text;
}

std::string text_of(const Error& error) {
  std::string text;
  for (const Problem& problem : error.problems()) text += (text.empty() ? "" : "; ") + text_of(problem);
  return text;
}

}  // namespace

std::string failure_message(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return one_line(text_of(*own));
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) return one_line(torch->what_without_backtrace());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  if (dynamic_cast<const std::logic_error*>(&error) != nullptr) {
    return one_line(fmt::format("internal error: {}", error.what()));
  }
  return one_line(error.what());
}

std::optional<std::string> failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    return failure_message(error);
  }
  return std::nullopt;
}

}  // namespace draftsmith::evaluate
