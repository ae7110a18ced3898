// The regular expressions of tokenizer.json's Split, with the meaning that Oniguruma gives them: alternatives,
// (groups), (?:groups), (?i:case-insensitive ASCII), (?=ahead), (?!not ahead), [classes [nested] a-z], \p{L}, \p{N},
// \s, \S, \r \n \t, literals; greedy and possessive ? * + and {m,n}. Anything else is a named error.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace draftsmith::data {

// A set of characters: a class in brackets, an escape or a literal.
struct CharacterSet {
  bool negated = false;
  uint8_t classes = 0;      // CharacterClass bits: characters of any of these
  uint8_t not_classes = 0;  // characters that lack any of these (\S, \P{L})
  std::vector<std::pair<char32_t, char32_t>> ranges;
  std::vector<CharacterSet> nested;
  std::bitset<128> ascii;  // set by seal()

  bool contains(char32_t c) const { return c < 128 ? ascii[c] : slow_contains(c); }
  // Precomputes membership of ASCII characters; nested sets must be sealed.
  void seal();

 private:
  bool slow_contains(char32_t c) const;
};

class TextPattern {
 public:
  // `where` names the place in messages. Errors: UserError for an expression that is malformed, too large, uses
  // something unsupported or matches the empty text.
  TextPattern(std::string_view expression, std::string where);

  // End of the match that begins at byte `at` of valid UTF-8, or `at` when none begins there. Errors: UserError when
  // matching takes more steps than any sound expression needs.
  size_t match(std::string_view text, size_t at) const;

 private:
  friend class PatternCompiler;

  enum class Op : uint8_t {
    kSet,     // one character of sets_[set]
    kRun,     // min to max characters of sets_[set], as many as possible; possessive: gives none back
    kSplit,   // tries first, then second
    kJump,    // to first
    kAhead,   // the program after this must match (negated: must not) here; goes on at first
    kMatched  // the end
  };
  struct Instruction {
    Op op = Op::kMatched;
    bool negated = false;
    bool possessive = false;
    size_t set = 0;
    size_t min = 0;
    size_t max = 0;
    size_t first = 0;
    size_t second = 0;
  };
  static constexpr size_t kFailed = static_cast<size_t>(-1);

  size_t run(std::string_view text, size_t pc, size_t at, size_t& steps) const;
  [[noreturn]] void too_slow() const;

  std::string expression_;
  std::string where_;
  std::vector<CharacterSet> sets_;
  std::vector<Instruction> program_;
};

}  // namespace draftsmith::data
