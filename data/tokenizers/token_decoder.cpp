#include "data/tokenizers/token_decoder.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizers/byte_level.h"
#include "data/tokenizers/text_normalizer.h"

namespace draftsmith::data {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Returns the byte of a piece such as <0xE4>, or -1.
int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  const int high = hex_digit(piece[3]);
  const int low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string replace_each(std::string_view bytes) {
  std::string text;
  while (const auto bad = invalid_utf8_offset(bytes)) {
    text += bytes.substr(0, *bad);
    text += kReplacementText;
    bytes.remove_prefix(*bad + 1);
  }
  text += bytes;
  return text;
}

}  // namespace

std::string repair_utf8(std::string_view bytes, InvalidBytes policy) {
  if (!invalid_utf8_offset(bytes)) return std::string(bytes);
  switch (policy) {
    case InvalidBytes::kReplaceParts:
      return replace_invalid_utf8(bytes);
    case InvalidBytes::kReplaceEach:
      return replace_each(bytes);
    case InvalidBytes::kReplaceRun:
      break;
  }
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) text += kReplacementText;
  return text;
}

TextPiece TokenDecoder::piece(std::string_view piece) const {
  if (byte_level_) {
    auto bytes = bytes_of_piece(piece);
    return {TextPiece::Kind::kBytes, bytes ? std::move(*bytes) : std::string(piece)};
  }
  std::string text(piece);
  for (const auto& [what, by] : replaced_) text = replace_all(text, what, by);
  const int byte = byte_fallback_ ? fallback_byte(text) : -1;
  if (byte >= 0) return {TextPiece::Kind::kBytes, std::string(1, static_cast<char>(byte))};
  return {TextPiece::Kind::kText, std::move(text)};
}

std::string TokenDecoder::join(const std::vector<const TextPiece*>& pieces) const {
  std::string text;
  std::string run;
  if (byte_level_) {
    for (const TextPiece* piece : pieces) text += piece->text;
    return repair_utf8(text, InvalidBytes::kReplaceParts);
  }
  for (const TextPiece* piece : pieces) {
    if (piece->kind == TextPiece::Kind::kBytes) {
      run += piece->text;
      continue;
    }
    text += repair_utf8(run, InvalidBytes::kReplaceRun) + piece->text;
    run.clear();
  }
  text += repair_utf8(run, InvalidBytes::kReplaceRun);
  const size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(std::min(spaces, strip_));
}

StreamRules TokenDecoder::rules() const {
  if (byte_level_) return {.invalid = InvalidBytes::kReplaceParts, .drops_leading_space = false};
  return {.invalid = InvalidBytes::kReplaceRun, .drops_leading_space = strip_ > 0};
}

}  // namespace draftsmith::data
