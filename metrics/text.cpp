#include "metrics/text.h"

#include <stdexcept>

namespace draftsmith::metrics {
namespace {

struct Decoded {
  char32_t code_point = 0xFFFD;
  size_t bytes = 1;
};

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

// Decodes the sequence that starts at `at`; an invalid one is a single replacement character for one byte.
Decoded decode_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80U) return {lead, 1};
  size_t bytes = 0;
  char32_t value = 0;
  char32_t smallest = 0;
  if ((lead & 0xE0U) == 0xC0U) {
    bytes = 2, value = lead & 0x1FU, smallest = 0x80;
  } else if ((lead & 0xF0U) == 0xE0U) {
    bytes = 3, value = lead & 0x0FU, smallest = 0x800;
  } else if ((lead & 0xF8U) == 0xF0U) {
    bytes = 4, value = lead & 0x07U, smallest = 0x10000;
  } else {
    return {};
  }
  if (at + bytes > text.size()) return {};
  for (size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (!is_continuation(byte)) return {};
    value = (value << 6U) | (byte & 0x3FU);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest || value > 0x10FFFF || surrogate) return {};
  return {value, bytes};
}

}  // namespace

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode_at(text, at);
    result.push_back(next.code_point);
    at += next.bytes;
  }
  return result;
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | (code_point >> 6U));
    put(0x80U | (code_point & 0x3FU));
  } else if (code_point < 0x10000) {
    put(0xE0U | (code_point >> 12U));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xF0U | (code_point >> 18U));
    put(0x80U | ((code_point >> 12U) & 0x3FU));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

bool is_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode_at(text, at);
    if (is_space(next.code_point)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + next.bytes;
    }
    at += next.bytes;
  }
  if (text.size() > begin) words.push_back(text.substr(begin));
  return words;
}

References references_from_streams(const std::vector<std::vector<std::string>>& streams) {
  if (streams.empty()) throw std::logic_error("references_from_streams: no stream");
  References references(streams.front().size());
  for (const auto& stream : streams) {
    if (stream.size() != references.size()) throw std::logic_error("references_from_streams: unequal streams");
    for (size_t line = 0; line < stream.size(); ++line) references[line].push_back(stream[line]);
  }
  return references;
}

}  // namespace draftsmith::metrics
