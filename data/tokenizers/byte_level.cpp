#include "data/tokenizers/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace draftsmith::data {

namespace {

constexpr size_t kCharacters = 0x100 + 68;  // 68 bytes are not printable in Latin-1

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Returns the character of each byte: the byte itself if it is printable in Latin-1, else U+0100 and following.
constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) characters[byte] = is_printable(byte) ? byte : next++;
  return characters;
}

// Returns the byte of each character, or -1.
constexpr std::array<int16_t, kCharacters> make_bytes() {
  std::array<int16_t, kCharacters> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  const auto characters = make_characters();
  for (size_t byte = 0; byte < 256; ++byte) bytes[characters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr auto kCharacterOf = make_characters();
constexpr auto kByteOf = make_bytes();

}  // namespace

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint c = code_point_at(piece, at);
    if (c.value >= kCharacters || kByteOf[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[c.value]));
    at += c.length;
  }
  return bytes;
}

std::string piece_of_bytes(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) append_utf8(kCharacterOf[static_cast<uint8_t>(byte)], piece);
  return piece;
}

}  // namespace draftsmith::data
