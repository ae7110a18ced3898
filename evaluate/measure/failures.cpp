#include "evaluate/measure/failures.h"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>

#include "base/signals.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kLongestMessage = 400;  // bytes: messages of memory managers go on with advice

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const auto doubled = std::ranges::unique(text, [](char a, char b) { return a == ' ' && b == ' '; });
  text.erase(doubled.begin(), doubled.end());
  return text.size() <= kLongestMessage ? text : text.substr(0, text.rfind(' ', kLongestMessage)) + " ...";
}

}  // namespace

std::optional<std::string> failure_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Interrupted&) {
    throw;
  } catch (const c10::Error& error) {
    return one_line(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::logic_error& error) {
    return one_line(std::string("internal error: ") + error.what());
  } catch (const std::exception& error) {
    return one_line(error.what());
  }
}

}  // namespace draftsmith::evaluate
