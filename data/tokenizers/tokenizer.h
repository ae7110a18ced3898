// Text to token ids and back: SentencePiece models, and byte pair encoding as Hugging Face `tokenizers` stores it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

// What one id adds to a text, wherever it stands: nothing (special tokens), text, or bytes that make characters
// together with neighbouring bytes. SentencePiece's control ids are empty text: they end a run of bytes.
struct TextPiece {
  enum class Kind { kNothing, kText, kBytes };
  Kind kind = Kind::kText;
  std::string text{};
};

// What decode makes of bytes that are no UTF-8: one U+FFFD for each maximal ill-formed part (Rust's from_utf8_lossy),
// for each ill-formed byte (SentencePiece), or for each byte of a run with an ill-formed one (ByteFallback).
enum class InvalidBytes { kReplaceParts, kReplaceEach, kReplaceRun };

// What a stream must know besides TextPiece (data/tokenizers/stream_decoder.h).
struct StreamRules {
  InvalidBytes invalid = InvalidBytes::kReplaceParts;
  bool drops_leading_space = false;  // decode drops a space at the start of a text
};

// Ids that Transformers puts before and after a single text (BOS of a Llama, EOS of a T5).
struct TextFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// All functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ids of a text, without BOS and EOS. The text must be valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Text of ids; control ids (pad, EOS) print nothing; ids outside the vocabulary are an error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Ids are below this; not every one need have a piece.
  virtual int64_t vocabulary() const = 0;
  // -1 where the tokenizer has no such id (Llama's have no pad).
  virtual int32_t pad() const = 0;
  virtual int32_t eos() const = 0;
  virtual int32_t unk() const = 0;
  virtual int32_t bos() const { return -1; }
  virtual std::string piece(int32_t id) const = 0;
  // SHA-256 of what defines the tokenizer; recorded in everything made with it.
  virtual const std::string& hash() const = 0;
  // The file it was loaded from (spiece.model, tokenizer.json, vocab.json).
  virtual const std::filesystem::path& file() const = 0;
  // All files to be copied into model directories, under their own names: file() and what belongs to it there.
  virtual std::vector<std::filesystem::path> files() const { return {file()}; }
  virtual TextFrame frame() const { return {}; }

  // For streams of text: see data/tokenizers/stream_decoder.h. By default an id's text is what decode gives for it
  // alone.
  virtual TextPiece text_piece(int32_t id) const { return {TextPiece::Kind::kText, decode({&id, 1})}; }
  virtual StreamRules stream_rules() const { return {}; }
};

}  // namespace draftsmith::data
