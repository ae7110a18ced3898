// Messages of errors and problems, for tests that compare them, and the matchers of texts and lists.
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/error.h"

namespace draftsmith {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns the whole message of the `Expected` error that `action` throws, or "no error" if it throws nothing. Passes
// errors of other types on, so that a test with the wrong kind of error fails.
template <class Expected = UserError, std::invocable Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no error";
}

// Returns the problems as one message, empty if there are none.
inline std::string text_of(const std::vector<Problem>& problems) {
  return problems.empty() ? std::string() : UserError(problems).what();
}

// Returns the problems of options that stand at `where` as one message.
template <class Options>
std::string option_problems(const Options& options, const std::string& where = "") {
  Problems problems;
  validate_options(options, where, problems);
  return text_of(problems.list());
}

}  // namespace draftsmith
