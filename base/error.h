// Errors that teach: where the problem is, what was expected, what was found and what to do about it.
//
// UserError is what the user can correct (a bad argument, configuration or file): the program exits with 2 and has
// written nothing. RunError is a run that failed (a disk that filled up, a loss that became NaN): exit 1, what was
// finished stays. Bugs of our own are std::logic_error.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace draftsmith {

// One problem. Empty members are left out of the message.
struct Problem {
  std::string where = {};  // file, file:line, option name, tensor name
  std::string what = {};   // the problem in one sentence, without a full stop
  std::string expected = {};
  std::string found = {};
  std::string hint = {};  // what the user should do
};

// The message printed for a problem, several lines, no trailing newline.
std::string to_string(const Problem& problem);

class Error : public std::runtime_error {
 public:
  explicit Error(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }
  virtual int exit_code() const = 0;

 private:
  std::vector<Problem> problems_;
};

// The user can correct it; exit code 2.
class UserError : public Error {
 public:
  explicit UserError(Problem problem) : Error({std::move(problem)}) {}
  explicit UserError(std::vector<Problem> problems) : Error(std::move(problems)) {}
  int exit_code() const override { return 2; }
};

// The run failed; exit code 1.
class RunError : public Error {
 public:
  explicit RunError(Problem problem) : Error({std::move(problem)}) {}
  int exit_code() const override { return 1; }
};

// Collects problems so that all are reported at once.
class Problems {
 public:
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  // Throws a UserError that names every problem collected, if there is any.
  void throw_if_any() const;

 private:
  std::vector<Problem> list_;
};

// The element of `known` nearest to `name` by edit distance, or empty when none is near enough to be meant.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

}  // namespace draftsmith
