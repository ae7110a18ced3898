// Text to token ids and back. SentencePiece today; the interface is what every tokenizer implements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

// All functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ids of a text, without EOS. The text must be valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Text of ids; control ids (pad, EOS) print nothing; ids outside the vocabulary are an error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual int64_t vocabulary() const = 0;
  // -1 where the tokenizer has no such id (Llama's have no pad).
  virtual int32_t pad() const = 0;
  virtual int32_t eos() const = 0;
  virtual int32_t unk() const = 0;
  virtual std::string piece(int32_t id) const = 0;
  // SHA-256 of what defines the tokenizer; recorded in everything made with it.
  virtual const std::string& hash() const = 0;
  // The file it was loaded from (spiece.model), to be copied into model directories.
  virtual const std::filesystem::path& file() const = 0;
};

// Whether a model directory holds a tokenizer that load_tokenizer reads.
bool has_tokenizer(const std::filesystem::path& directory);

// Loads a tokenizer file (spiece.model, tokenizer.model), or the one in a model directory.
// Errors: missing file, not a SentencePiece model.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory);

}  // namespace draftsmith::data
