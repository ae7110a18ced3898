// The byte-level alphabet (Radford et al. 2019): each byte is written as one printable character, so that pieces of any
// bytes are texts. The inverse is what decoding uses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftsmith::data {

// The character that stands for each byte: itself where printable in Latin-1, else U+0100 and following.
std::array<char32_t, 256> byte_characters();

// The bytes that a piece stands for, or nothing when a character of it stands for no byte.
std::optional<std::string> bytes_of_piece(std::string_view piece);

// The piece that stands for the bytes.
std::string piece_of_bytes(std::string_view bytes);

}  // namespace draftsmith::data
