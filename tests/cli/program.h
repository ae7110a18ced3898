// Runs the program `draftsmith` as a user would.
#pragma once

#include <string>
#include <vector>

namespace draftsmith::test {

struct ProgramResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs draftsmith with `arguments` and `input` on its standard input.
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace draftsmith::test
