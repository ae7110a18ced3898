// Tokenizers in GGUF: SentencePiece models (llama.cpp's "llama" and "t5") and byte-level BPE ("gpt2").
#pragma once

#include "data/tokenizers/tokenizer.h"
#include "recipes/export/gguf/gguf_file.h"

namespace draftsmith::recipes {

// Returns the values that describe a tokenizer. Ids above its pieces, up to the model's `vocabulary`, become unused
// tokens. Errors: UserError for a tokenizer that llama.cpp cannot hold.
GgufValues gguf_tokenizer(const data::Tokenizer& tokenizer, int64_t vocabulary);

// Returns the values of a model that reads ids alone.
GgufValues gguf_without_tokenizer();

}  // namespace draftsmith::recipes
