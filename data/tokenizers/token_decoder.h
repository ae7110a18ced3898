// Decoders of tokenizer.json that the families use, from pieces to text. ByteLevel joins the bytes of all pieces. The
// chain of Llama's SentencePiece is Replace, ByteFallback, Fuse, Strip.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Returns the bytes as valid UTF-8, with U+FFFD in place of ill-formed ones by the given policy.
std::string repair_utf8(std::string_view bytes, InvalidBytes policy);

class TokenDecoder {
 public:
  // Joins the bytes of all pieces, by byte_level.h, and repairs invalid UTF-8. A piece with a character outside the
  // alphabet stands for its own UTF-8.
  void use_byte_level() { byte_level_ = true; }
  // Replaces a text in each piece.
  void add_replace(std::string what, std::string by) { replaced_.emplace_back(std::move(what), std::move(by)); }
  // Decodes pieces such as <0xE4> to bytes. A run of bytes that is not valid UTF-8 becomes one U+FFFD for each byte.
  void use_byte_fallback() { byte_fallback_ = true; }
  // Drops up to this many spaces at the start of the text.
  void set_strip(size_t spaces) { strip_ = spaces; }

  // Returns the text or bytes of a piece, which do not depend on its position.
  TextPiece piece(std::string_view piece) const;
  // Returns the text of such pieces in order.
  std::string join(const std::vector<const TextPiece*>& pieces) const;
  // Returns the rules for streams that agree with join().
  StreamRules rules() const;

 private:
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  size_t strip_ = 0;
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace draftsmith::data
