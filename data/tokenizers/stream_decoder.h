// Text of a token stream as it grows: ids in one at a time, text out that never ends inside a character. All texts put
// together are what Tokenizer::decode gives for all ids at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

class StreamDecoder {
 public:
  // The tokenizer must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), rules_(tokenizer.stream_rules()) {}

  // The text that is certain now: valid UTF-8, empty while bytes of a character are missing. Errors: UserError for an
  // id outside the vocabulary.
  std::string push(int32_t id);
  // What was held back (bytes that never became a character: U+FFFD), at the end of a text; then a new one begins.
  std::string flush();

 private:
  std::string push_first(int32_t id, const TextPiece& piece);
  std::string take_ready();
  std::string drain();

  const Tokenizer& tokenizer_;
  StreamRules rules_;
  bool at_start_ = true;            // nothing printed yet
  std::vector<int32_t> first_ids_;  // until then, where a leading space is dropped: decoded together
  std::string bytes_;               // of the current run, not printed yet
};

}  // namespace draftsmith::data
