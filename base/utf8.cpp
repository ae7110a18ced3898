#include "base/utf8.h"

#include <array>

#include <fmt/format.h>
#include <unicode/uchar.h>

namespace draftsmith {
namespace {

// Returns the columns of the character at byte `at` and moves `at` behind it, or behind one ill-formed byte.
size_t take_width(std::string_view text, size_t& at) {
  const CodePoint c = code_point_at(text, at);
  at += c.valid ? c.length : 1;
  if (!c.valid) return 1;
  const auto point = static_cast<UChar32>(c.value);
  if ((U_MASK(u_charType(point)) & (U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK)) != 0) return 0;
  const int32_t width = u_getIntPropertyValue(point, UCHAR_EAST_ASIAN_WIDTH);
  return width == U_EA_WIDE || width == U_EA_FULLWIDTH ? 2 : 1;
}

}  // namespace

bool is_white_space(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

void append_utf8(char32_t c, std::string& text) {
  std::array<char, U8_MAX_LENGTH> bytes{};
  size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, static_cast<uint32_t>(c));
  text.append(bytes.data(), length);
}

std::optional<size_t> invalid_utf8_offset(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!c.valid) return at;
    at += c.length;
  }
  return std::nullopt;
}

size_t incomplete_suffix(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  auto complete = std::ssize(text);
  U8_TRUNCATE_IF_INCOMPLETE(bytes, 0, complete);
  return text.size() - static_cast<size_t>(complete);
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    repaired += c.valid ? text.substr(at, c.length) : kReplacementText;
    at += c.length;
  }
  return repaired;
}

bool is_blank(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.value)) return false;
    at += c.length;
  }
  return true;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) width += take_width(text, at);
  return width;
}

size_t prefix_of_width(std::string_view text, size_t width) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    const size_t columns = take_width(text, at);
    if (columns > width) break;
    width -= columns;
  }
  return end;
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, begin)) {
    out += text.substr(begin, at - begin);
    out += by;
    begin = at + what.size();
  }
  out += text.substr(begin);
  return out;
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text.size() > kLongest ? out + "..." : out;
}

}  // namespace draftsmith
