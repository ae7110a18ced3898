// The program that a regular expression is compiled to: sets of characters and instructions.
#pragma once

#include <bitset>
#include <cstdint>
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

struct PatternProgram {
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

  std::vector<CharacterSet> sets;
  std::vector<Instruction> instructions;
};

}  // namespace draftsmith::data
