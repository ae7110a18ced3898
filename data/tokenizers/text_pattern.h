// The regular expressions of tokenizer.json's Split, with the meaning that Oniguruma gives them: alternatives,
// (groups), (?:groups), (?i:case-insensitive ASCII), (?=ahead), (?!not ahead), [classes [nested] a-z], \p{L}, \p{N},
// \s, \S, \r \n \t, literals; greedy and possessive ? * + and {m,n}. Anything else is a named error.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizers/pattern_program.h"

namespace draftsmith::data {

class TextPattern {
 public:
  // `where` names the place in messages. Errors: UserError for an expression that is malformed, too large, uses
  // something unsupported or matches the empty text.
  TextPattern(std::string_view expression, std::string where);

  // End of the match that begins at byte `at` of valid UTF-8, or `at` when none begins there. Errors: UserError when
  // matching takes more steps than any sound expression needs.
  size_t match(std::string_view text, size_t at) const;

 private:
  using Op = PatternProgram::Op;
  using Instruction = PatternProgram::Instruction;
  static constexpr size_t kFailed = static_cast<size_t>(-1);

  size_t run(std::string_view text, size_t pc, size_t at, size_t& steps) const;
  [[noreturn]] void too_slow() const;

  std::string expression_;
  std::string where_;
  PatternProgram program_;
};

}  // namespace draftsmith::data
