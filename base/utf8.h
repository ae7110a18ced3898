// UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF), decoded by ICU's macros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <unicode/utf8.h>

namespace draftsmith {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";  // the same in UTF-8

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// Returns whether a character is Unicode's white space (property White_Space).
bool is_white_space(char32_t c);

struct CodePoint {
  char32_t value = 0;   // U+FFFD for ill-formed bytes
  uint32_t length = 0;  // bytes; of ill-formed bytes: the maximal part that U+FFFD replaces (Unicode 15, section 3.9)
  bool valid = true;
};

// Returns the character that begins at byte `at` < text.size().
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  size_t next = at;
  int32_t value = 0;
  U8_NEXT(bytes, next, text.size(), value);
  const auto length = static_cast<uint32_t>(next - at);
  return value < 0 ? CodePoint{kReplacementCharacter, length, false} : CodePoint{static_cast<char32_t>(value), length};
}

// Returns where the character before byte `at` > 0 begins; the text must be valid.
inline size_t previous_character(std::string_view text, size_t at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  U8_BACK_1_UNSAFE(bytes, at);
  return at;
}

// Appends a character that is no surrogate.
void append_utf8(char32_t c, std::string& text);

// Returns the offset of the first byte that does not begin or continue a valid character, or nothing if all are valid.
std::optional<size_t> invalid_utf8_offset(std::string_view text);

// Returns the number of bytes at the end (0 to 3) that more bytes may complete to a character.
size_t incomplete_suffix(std::string_view text);

// Returns the text with U+FFFD for each maximal ill-formed part (Unicode 15, section 3.9).
std::string replace_invalid_utf8(std::string_view text);

// Returns the text with each occurrence of `what` replaced, from left to right; `what` must not be empty.
std::string replace_all(std::string_view text, std::string_view what, std::string_view by);

// Returns whether the text has no other characters than white space.
bool is_blank(std::string_view text);

// Returns the columns that the text takes on a terminal: one for each character, none for combining marks, two for wide
// East Asian characters and emoji. Each ill-formed byte counts as one.
size_t display_width(std::string_view text);

// Returns the bytes of the longest beginning of the text that takes at most `width` columns.
size_t prefix_of_width(std::string_view text, size_t width);

// Returns the text with all but printable ASCII escaped as \xNN, cut at 120 characters.
std::string printable(std::string_view text);

}  // namespace draftsmith
