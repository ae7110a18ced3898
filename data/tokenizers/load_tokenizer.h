// Loads the tokenizer of a file or a model directory.
//
// Which files of a model directory count, in this order:
// 1. tokenizer.json, when its model is BPE, as in Transformers;
// 2. spiece.model or tokenizer.model (beside a tokenizer.json of another kind: T5's is a copy of its SentencePiece
//    model), unless that is no SentencePiece model and the directory has other files (Llama 3 keeps tiktoken's there);
// 3. vocab.json with merges.txt (GPT-2's own form).
// A Llama with both tokenizer.model and tokenizer.json has the same ids by either.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Whether a model directory holds files that load_tokenizer takes for a tokenizer.
bool has_tokenizer(const std::filesystem::path& directory);

// Loads a tokenizer file (spiece.model, tokenizer.model, tokenizer.json, or vocab.json beside merges.txt), or the one
// in a model directory. Errors: UserError for a missing file, one that is malformed, and components of tokenizer.json
// that are not supported (named).
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory);

}  // namespace draftsmith::data
