// Token ids to text: the byte-level alphabet, the decoders of tokenizer.json, and streams of ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// The byte-level alphabet (Radford et al. 2019): one printable character stands for each byte, so that pieces of any
// bytes are valid text.
//
// Returns the bytes of a piece, or nothing if one of its characters stands for no byte.
std::optional<std::string> bytes_of_piece(std::string_view piece);

// Returns the piece of the bytes.
std::string piece_of_bytes(std::string_view bytes);

// Returns the bytes as valid UTF-8, with U+FFFD in place of ill-formed ones by the given policy.
std::string repair_utf8(std::string_view bytes, InvalidBytes policy);

// Decoders of tokenizer.json that the families use, from pieces to text. ByteLevel joins the bytes of all pieces. The
// chain of Llama's SentencePiece is Replace, ByteFallback, Fuse, Strip.
class TokenDecoder {
 public:
  // Joins the bytes of all pieces, by the byte-level alphabet, and repairs invalid UTF-8. A piece with a character
  // outside the alphabet stands for its own UTF-8.
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

// Decodes a stream of ids, one id at a time, to text that never ends inside a character. The concatenated texts equal
// Tokenizer::decode of all ids.
class StreamDecoder {
 public:
  // The tokenizer must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), rules_(tokenizer.stream_rules()) {}

  // Adds an id and returns the text that is complete now: valid UTF-8, empty while bytes of a character are missing.
  // Errors: UserError for an id outside the vocabulary.
  std::string push(int32_t id);
  // Ends the text: returns its rest, with U+FFFD for bytes of an incomplete character. The next id begins a new text.
  std::string flush();

 private:
  std::string push_first(int32_t id, const TextPiece& piece);
  std::string take_ready();
  std::string drain();

  const Tokenizer& tokenizer_;
  StreamRules rules_;
  bool at_start_ = true;            // no text returned yet
  std::vector<int32_t> first_ids_;  // ids since the start, if a leading space is dropped
  std::string bytes_;               // bytes of the current run that were not returned yet
};

}  // namespace draftsmith::data
