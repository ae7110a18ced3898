#include "data/tokenizers/stream_decoder.h"

#include "base/utf8.h"
#include "data/tokenizers/token_decoder.h"

namespace draftsmith::data {

std::string StreamDecoder::drain() {
  std::string text = repair_utf8(bytes_, rules_.invalid);
  bytes_.clear();
  return text;
}

std::string StreamDecoder::take_ready() {
  if (rules_.invalid == InvalidBytes::kReplaceRun) return {};  // one later byte may make the whole run invalid
  const size_t open = incomplete_suffix(bytes_);
  const std::string tail = bytes_.substr(bytes_.size() - open);
  bytes_.erase(bytes_.size() - open);
  std::string text = drain();
  bytes_ = tail;
  return text;
}

// Decodes the first ids together until they give text: the leading space is dropped from the first id that gives any.
std::string StreamDecoder::push_first(int32_t id, const TextPiece& piece) {
  const bool prints_nothing = piece.kind == TextPiece::Kind::kText && piece.text.empty();
  if (first_ids_.empty() && prints_nothing) return {};
  first_ids_.push_back(id);
  if (piece.kind == TextPiece::Kind::kBytes) {
    bytes_ += piece.text;
    if (rules_.invalid == InvalidBytes::kReplaceRun || incomplete_suffix(bytes_) > 0) return {};
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
