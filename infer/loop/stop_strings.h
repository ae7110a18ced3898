// Stop strings: an output ends with the token that completes one of them in its text, as Transformers' `stop_strings`.
// Every method commits tokens one by one (Row::emit), so a drafted window is cut at the same token as plain decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::infer {

// Follows the text of one output, prompt included: a stop string may begin in the prompt. Never matches half a
// character.
class StopStringMatcher {
 public:
  // `strings` must not hold empty ones. The tokenizer must outlive this.
  StopStringMatcher(std::shared_ptr<const std::vector<std::string>> strings, const data::Tokenizer& tokenizer);

  // Adds a token and returns whether its text completes a stop string, wherever in that text the string ends. Ids that
  // the tokenizer lacks have no text.
  bool add(int64_t token);

 private:
  std::shared_ptr<const std::vector<std::string>> strings_;
  const data::Tokenizer& tokenizer_;
  data::StreamDecoder decoder_;
  size_t longest_ = 0;  // bytes of the longest stop string
  std::string tail_;    // the text's last longest_ - 1 bytes
};

}  // namespace draftsmith::infer
