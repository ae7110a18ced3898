// Validation and repair of UTF-8 (Unicode 15, table 3-7): what every reader does with text before anything else sees
// it.
#pragma once

#include <string>
#include <string_view>

namespace draftsmith::data {

// The text with each maximal ill-formed sequence (Unicode 15, table 3-7 and section 3.9) replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// True for text without any character but Unicode white space (ASCII blanks, U+0085, U+00A0, U+1680, U+2000..U+200A,
// U+2028, U+2029, U+202F, U+205F, U+3000). The text must be valid UTF-8.
bool is_blank(std::string_view text);

}  // namespace draftsmith::data
