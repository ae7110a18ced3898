// The character classes \p{L}, \p{N} and \s of tokenizers' regular expressions, from tables of our own: ids must not
// depend on the Unicode version of the machine's libraries.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/utf8.h"

namespace draftsmith::data {

// The classes of CharacterClasses::of; a character has at most one.
enum CharacterClass : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4 };

// Return the letters and numbers of Unicode 16, equal to Oniguruma 6.9.10, the engine of Hugging Face `tokenizers`.
// tools/parity_tokenizers.py generates the tables (generated/character_ranges.cpp).
std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();

class CharacterClasses {
 public:
  // Returns the table, which is made at the first call.
  static const CharacterClasses& table();

  // Returns the class of a character, or 0.
  uint8_t of(char32_t c) const {
    const size_t page = c >> 8;
    return page < pages_.size() ? blocks_[pages_[page]][c & 0xff] : uint8_t{0};
  }

 private:
  CharacterClasses();

  std::vector<uint16_t> pages_;                   // block of each 256 code points
  std::vector<std::array<uint8_t, 256>> blocks_;  // distinct blocks
};

// Returns whether a character is part of words, like \w of the `regex` crate: alphabetic, mark, decimal digit,
// connector or joiner. Added tokens with the flag `single_word` may not touch such a character.
bool is_word_character(char32_t c);

}  // namespace draftsmith::data
