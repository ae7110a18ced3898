// Token ids of text that a chat template has written.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Returns the ids of a template's text. The text has its own BOS, so none is added; the texts of BOS and EOS become
// their ids with SentencePiece models too, which do not look for them.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view text);

// Returns the ids of an assistant's message up to its first EOS; without one, an EOS is added. A template's newline
// behind EOS is thus left out, as a model ends there.
std::vector<int32_t> encode_reply(const Tokenizer& tokenizer, std::string_view text);

}  // namespace draftsmith::data
