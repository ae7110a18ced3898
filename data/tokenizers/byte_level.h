// The byte-level alphabet (Radford et al. 2019): one printable character stands for each byte, so that pieces of any
// bytes are valid text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace draftsmith::data {

// Returns the bytes of a piece, or nothing if one of its characters stands for no byte.
std::optional<std::string> bytes_of_piece(std::string_view piece);

// Returns the piece of the bytes.
std::string piece_of_bytes(std::string_view bytes);

}  // namespace draftsmith::data
