// The character classes that tokenizers' regular expressions use (\p{L}, \p{N}, \s), from tables of our own: ids must
// equal those of the engine the tokenizer was trained with, whatever version of Unicode the machine's ICU knows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/utf8.h"

namespace draftsmith::data {

// Bits of CharacterClasses::of; a character has at most one of them.
enum CharacterClass : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4 };

// Letters and numbers of Unicode 16, as Oniguruma 6.9.10 (the engine of Hugging Face `tokenizers`) has them; made and
// checked by tools/parity_tokenizers.py.
std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();

class CharacterClasses {
 public:
  // The table, made once.
  static const CharacterClasses& table();

  uint8_t of(char32_t c) const {
    const size_t page = c >> 8;
    return page < pages_.size() ? blocks_[pages_[page]][c & 0xff] : uint8_t{0};
  }

 private:
  CharacterClasses();

  std::vector<uint16_t> pages_;                   // block of each 256 code points
  std::vector<std::array<uint8_t, 256>> blocks_;  // distinct blocks
};

// Whether a character continues a word (\w of the `regex` crate: alphabetic, marks, decimal digits, connectors and
// joiners): an added token that must stand alone may not touch one.
bool is_word_character(char32_t c);

}  // namespace draftsmith::data
