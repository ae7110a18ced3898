// Runs the program `draftsmith` as a user would, alone or beside a test.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace draftsmith::test {

// Returns a command line of `first` and the words of `more`.
inline std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};

// Runs draftsmith with `arguments` and `input` on its standard input.
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "");
// Runs the command line in the tests' own process, which is much faster. For commands that read no standard input.
ProgramResult run_here(const std::vector<std::string>& arguments);
// Requires exit code 2, and no output of what must be `silent`. Returns the error.
std::string refusal_of(const ProgramResult& result, bool silent = false);

// One process that runs beside the test; killed at the end if it still runs.
class ProcessBeside {
 public:
  // Starts a program with its arguments.
  explicit ProcessBeside(std::vector<std::string> line);
  ~ProcessBeside();
  ProcessBeside(const ProcessBeside&) = delete;
  ProcessBeside& operator=(const ProcessBeside&) = delete;

  void send(int signal) const { ::kill(process_, signal); }
  bool runs();
  // Returns the processes that it has started.
  std::vector<pid_t> children() const;
  // Waits for the end. The exit code is 128 plus the signal of a killed process.
  ProgramResult wait();

 private:
  std::unique_ptr<TemporaryDirectory> folder_;
  pid_t process_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

// Prompts of token ids for models of 31 ids.
inline constexpr const char* kPrompts = "5 9 14 3\n7\n11 12 13 20 21 8\n";

// The first stages of recipes that tests run: text of the synthetic language and its tokenizer.
inline constexpr const char* kTinyLanguage = R"(
[language]
kind = "language"
train = 400
valid = 20
test = 6
vocabulary = 60
max_words = 8
[tokenizer]
kind = "tokenizer"
input = ["@language/train.src", "@language/train.tgt"]
vocabulary = 200
exact_size = false
)";

}  // namespace draftsmith::test
