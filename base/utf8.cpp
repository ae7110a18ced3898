#include "base/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace draftsmith {

namespace {

struct Decoded {
  uint32_t code_point = 0;
  size_t length = 0;  // 0: malformed
};

bool is_continuation(unsigned char byte, unsigned char low = 0x80, unsigned char high = 0xbf) {
  return byte >= low && byte <= high;
}

Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first >= 0xc2 && first <= 0xdf) {
    if (text.size() < 2 || !is_continuation(byte(1))) return {};
    return {(first & 0x1fu) << 6 | (byte(1) & 0x3fu), 2};
  }
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned char low = first == 0xe0 ? 0xa0 : 0x80;   // no overlong form
    const unsigned char high = first == 0xed ? 0x9f : 0xbf;  // no surrogate
    if (text.size() < 3 || !is_continuation(byte(1), low, high) || !is_continuation(byte(2))) return {};
    return {(first & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu), 3};
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned char low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xf4 ? 0x8f : 0xbf;  // at most U+10FFFF
    if (text.size() < 4 || !is_continuation(byte(1), low, high) || !is_continuation(byte(2)) ||
        !is_continuation(byte(3))) {
      return {};
    }
    return {(first & 0x07u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu), 4};
  }
  return {};
}

struct Interval {
  uint32_t first, last;
};

template <size_t N>
bool within(const std::array<Interval, N>& intervals, uint32_t code_point) {
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](Interval i) { return code_point >= i.first && code_point <= i.last; });
}

// The blocks that matter for tables: combining marks, zero-width characters, and wide East Asian text and emoji.
constexpr std::array<Interval, 6> kZeroWidth{
    {{0x0300, 0x036f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
constexpr std::array<Interval, 9> kWide{{{0x1100, 0x115f},
                                         {0x2e80, 0x303e},
                                         {0x3041, 0xa4cf},
                                         {0xac00, 0xd7a3},
                                         {0xf900, 0xfaff},
                                         {0xfe30, 0xfe6f},
                                         {0xff00, 0xff60},
                                         {0x1f300, 0x1faff},
                                         {0x20000, 0x3fffd}}};

}  // namespace

std::optional<size_t> invalid_utf8_offset(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = decode(text.substr(at));
    if (decoded.length == 0) return at;
    at += decoded.length;
  }
  return std::nullopt;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = decode(text.substr(at));
    at += std::max<size_t>(decoded.length, 1);
    if (within(kZeroWidth, decoded.code_point)) continue;
    width += within(kWide, decoded.code_point) ? 2 : 1;
  }
  return width;
}

}  // namespace draftsmith
