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
// Runs the command line in the tests' own process, which is much faster. For commands that read no standard input.
ProgramResult run_here(const std::vector<std::string>& arguments);

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
