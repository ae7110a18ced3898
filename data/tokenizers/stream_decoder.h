// Decodes a stream of ids, one id at a time, to text that never ends inside a character. The concatenated texts equal
// Tokenizer::decode of all ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

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
