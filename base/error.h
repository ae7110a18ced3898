// Errors that say where the problem is, what was expected, what was found and what to do about it.
//
// UserError: the user can correct it (a bad argument, configuration or file). The program exits with 2 and has written
// nothing. RunError: the run failed (a full disk, a loss that became NaN). The program exits with 1 and keeps finished
// work. Bugs of Draftsmith are std::logic_error.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace draftsmith {

// Problem that a message reports. The message omits empty members.
struct Problem {
  std::string where = {};  // file, file:line, option name, tensor name
  std::string what = {};   // the problem in one sentence, without a full stop
  std::string expected = {};
  std::string found = {};
  std::string hint = {};  // what the user should do
  bool operator==(const Problem&) const = default;
};

// Returns the message for a problem: several lines, no trailing newline.
std::string to_string(const Problem& problem);

class Error : public std::runtime_error {
 public:
  explicit Error(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }
  virtual int exit_code() const = 0;

 private:
  std::vector<Problem> problems_;
};

// Error that the user can correct; exit code 2.
class UserError : public Error {
 public:
  explicit UserError(Problem problem) : Error({std::move(problem)}) {}
  explicit UserError(std::vector<Problem> problems) : Error(std::move(problems)) {}
  int exit_code() const override { return 2; }
};

// Failure of a run; exit code 1.
class RunError : public Error {
 public:
  explicit RunError(Problem problem) : Error({std::move(problem)}) {}
  int exit_code() const override { return 1; }
};

// List of problems, so that all are reported at once.
class Problems {
 public:
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  // Adds each of `problems`, with `prefix` before its place, unless it is in the list.
  void add_all(const std::vector<Problem>& problems, const std::string& prefix = "");
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  // Throws a UserError with every collected problem, if there is any.
  void throw_if_any() const;

 private:
  std::vector<Problem> list_;
};

// Throws a UserError with every problem that check(args..., problems) adds, if there is any.
template <class Check, class... Args>
void throw_problems_of(Check check, const Args&... args) {
  Problems problems;
  check(args..., problems);
  problems.throw_if_any();
}

// Returns the problem that the file at `where` has `found` lines, and not as many as another one.
Problem other_line_count(std::string where, std::string what, size_t found, size_t expected, const std::string& other,
                         std::string hint = "");

// Returns the element of `known` with the smallest edit distance to `name`; empty if none is near enough.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

// Returns the problem that `name` is none of the `known` names, with the nearest of them as a hint. `subject` says what
// the names are of: "model family"; it stands for an empty `where`.
Problem unknown_name(const std::string& subject, const std::string& name, const std::vector<std::string>& known,
                     const std::string& where = "");

}  // namespace draftsmith
