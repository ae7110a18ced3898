// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace draftsmith {

// Byte offset of the first byte that does not begin or continue a well-formed sequence, or nothing when all is well.
std::optional<size_t> invalid_utf8_offset(std::string_view text);

// Columns that `text` takes on a terminal: one a code point, none for combining marks, two for wide East Asian
// characters. Malformed bytes count one each.
size_t display_width(std::string_view text);

}  // namespace draftsmith
