#include "data/tokenizers/stream_decoder.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/tokenizers/utf8.h"

namespace draftsmith::data {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Bytes that the sequence begun by this one takes; 0: it begins none.
size_t sequence_length(uint8_t lead) {
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Whether bytes can be continued to a character: a well-formed one begins with them.
bool is_character_start(std::string_view bytes) {
  const size_t length = sequence_length(static_cast<uint8_t>(bytes[0]));
  if (bytes.size() >= length) return false;
  // The second byte is restricted for some leads; 0x80, 0x90 and 0xA0 between them reach every allowed range.
  for (const char* rest : {"\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80"}) {
    std::string whole(bytes);
    whole += std::string_view(rest + (bytes.size() > 1 ? 1 : 0), length - bytes.size());
    if (!invalid_utf8_offset(whole)) return true;
  }
  return false;
}

// Bytes at the end that more bytes may complete.
size_t open_bytes(std::string_view bytes) {
  for (size_t count = 1; count <= std::min<size_t>(3, bytes.size()); ++count) {
    if (is_character_start(bytes.substr(bytes.size() - count))) return count;
  }
  return 0;
}

// Every byte that is part of no character replaced.
std::string replace_each(std::string_view bytes) {
  std::string text;
  while (const auto bad = invalid_utf8_offset(bytes)) {
    text += bytes.substr(0, *bad);
    text += kReplacement;
    bytes.remove_prefix(*bad + 1);
  }
  text += bytes;
  return text;
}

std::string replace_run(std::string_view bytes) {
  if (!invalid_utf8_offset(bytes)) return std::string(bytes);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) text += kReplacement;
  return text;
}

std::string repaired(std::string_view bytes, InvalidBytes rule) {
  switch (rule) {
    case InvalidBytes::kReplaceParts:
      return replace_invalid_utf8(bytes);
    case InvalidBytes::kReplaceEach:
      return replace_each(bytes);
    case InvalidBytes::kReplaceRun:
      break;
  }
  return replace_run(bytes);
}

}  // namespace

std::string StreamDecoder::drain() {
  std::string text = repaired(bytes_, rules_.invalid);
  bytes_.clear();
  return text;
}

std::string StreamDecoder::take_ready() {
  if (rules_.invalid == InvalidBytes::kReplaceRun) return {};  // the run's last byte may spoil it all
  const size_t open = open_bytes(bytes_);
  const std::string tail = bytes_.substr(bytes_.size() - open);
  bytes_.erase(bytes_.size() - open);
  std::string text = drain();
  bytes_ = tail;
  return text;
}

// Whether the first id's space is dropped depends on the ids after it, as those may print nothing: they are decoded
// together until they print something.
std::string StreamDecoder::push_first(int32_t id, const TextPiece& piece) {
  const bool prints_nothing = piece.kind == TextPiece::Kind::kText && piece.text.empty();
  if (first_ids_.empty() && prints_nothing) return {};
  first_ids_.push_back(id);
  if (piece.kind == TextPiece::Kind::kBytes) {
    bytes_ += piece.text;
    if (rules_.invalid == InvalidBytes::kReplaceRun || open_bytes(bytes_) > 0) return {};
  } else {
    bytes_.clear();
  }
  std::string text = tokenizer_.decode(first_ids_);
  if (text.empty()) return {};
  at_start_ = false;
  first_ids_.clear();
  bytes_.clear();
  return text;
}

std::string StreamDecoder::push(int32_t id) {
  const TextPiece piece = tokenizer_.text_piece(id);
  if (piece.kind == TextPiece::Kind::kNothing) return {};
  if (at_start_ && rules_.drops_leading_space) return push_first(id, piece);
  if (piece.kind == TextPiece::Kind::kBytes) {
    bytes_ += piece.text;
    return take_ready();
  }
  return drain() + piece.text;
}

std::string StreamDecoder::flush() {
  std::string text = at_start_ && rules_.drops_leading_space ? tokenizer_.decode(first_ids_) : drain();
  at_start_ = true;
  first_ids_.clear();
  bytes_.clear();
  return text;
}

}  // namespace draftsmith::data
