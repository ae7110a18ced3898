#include "data/tokenizers/utf8.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace draftsmith::data {

namespace {

// Length of the well-formed sequence at `at`, or 0; `bad` receives the length of the maximal ill-formed part.
size_t sequence_length(std::string_view text, size_t at, size_t& bad) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte is restricted further for leads that would give overlong forms, surrogates or too large values.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    const uint8_t next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) {
      bad = i;
      return 0;
    }
  }
  return length;
}

char32_t decode(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(sequence[i])); };
  switch (sequence.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

bool is_white_space(char32_t c) {
  constexpr std::array<char32_t, 9> kSpaces = {U' ', 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x2000 && c <= 0x200A) ||
         std::find(kSpaces.begin(), kSpaces.end(), c) != kSpaces.end();
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text, at, bad);
    if (length == 0) {
      repaired += "\xEF\xBF\xBD";
      at += bad;
    } else {
      repaired += text.substr(at, length);
      at += length;
    }
  }
  return repaired;
}

bool is_blank(std::string_view text) {
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, sequence_length(text, at, bad));
    if (!is_white_space(decode(text.substr(at, length)))) return false;
    at += length;
  }
  return true;
}

}  // namespace draftsmith::data
