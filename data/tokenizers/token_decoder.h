// From pieces back to text: the decoders of tokenizer.json that the families use. ByteLevel joins the bytes that all
// pieces stand for; the chain of Llama's SentencePiece is Replace, ByteFallback, Fuse, Strip.
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
  // Bytes of all pieces (as characters of byte_level.h; a piece with any other character stands for its own UTF-8) are
  // joined, and made valid UTF-8.
  void use_byte_level() { byte_level_ = true; }
  // In each piece.
  void add_replace(std::string what, std::string by) { replaced_.emplace_back(std::move(what), std::move(by)); }
  // Pieces like <0xE4> are bytes; a run of them that is no valid UTF-8 becomes U+FFFD, one for each byte.
  void use_byte_fallback() { byte_fallback_ = true; }
  // At most so many spaces at the start of the whole text are dropped.
  void set_strip(size_t spaces) { strip_ = spaces; }

  // What a piece gives, wherever it stands.
  TextPiece piece(std::string_view piece) const;
  // The text of such pieces in order.
  std::string join(const std::vector<const TextPiece*>& pieces) const;
  // How streams treat what join makes of its pieces.
  StreamRules rules() const;

 private:
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  size_t strip_ = 0;
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace draftsmith::data
