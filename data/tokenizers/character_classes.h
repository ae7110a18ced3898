// The character classes that tokenizers' regular expressions use (\p{L}, \p{N}, \s), from tables of our own: ids must
// equal those of the engine the tokenizer was trained with, whatever version of Unicode the machine's ICU knows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

// Bits of CharacterClasses::of; a character has at most one of them.
enum CharacterClass : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4 };

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Letters and numbers of Unicode 16, as Oniguruma 6.9.10 (the engine of Hugging Face `tokenizers`) has them; made and
// checked by tools/parity_tokenizers.py.
std::span<const CharacterRange> letter_ranges();
std::span<const CharacterRange> number_ranges();

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

struct CodePoint {
  char32_t value = 0;
  uint32_t length = 0;  // bytes
};

// The character at byte `at` of valid UTF-8; at < text.size(). A truncated sequence gives its first byte alone.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + i])); };
  const char32_t lead = byte(0);
  const size_t left = text.size() - at;
  if (lead < 0x80 || left < 2) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (left < 3) return {lead, 1};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  if (left < 4) return {lead, 1};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// Where the character before byte `at` begins; at > 0.
inline size_t previous_character(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

// UTF-8 of a character, appended.
void append_utf8(char32_t c, std::string& text);

}  // namespace draftsmith::data
