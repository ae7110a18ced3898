// Loads a tokenizer from a file or a model directory.
//
// Files of a model directory, in this order:
// 1. tokenizer.json if its model is BPE, as in Transformers;
// 2. spiece.model or tokenizer.model, also beside a tokenizer.json of another type (T5's is a copy of its SentencePiece
//    model). A tokenizer.model that is not SentencePiece's (Llama 3's is tiktoken's) is ignored beside other files;
// 3. vocab.json with merges.txt (GPT-2's own form).
// The two files of a Llama, tokenizer.model and tokenizer.json, give the same ids.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Returns whether a model directory has files that load_tokenizer would load.
bool has_tokenizer(const std::filesystem::path& directory);

// Loads a tokenizer from its file (spiece.model, tokenizer.model, tokenizer.json, or vocab.json beside merges.txt) or
// from a model directory. Errors: UserError for a missing or malformed file; UserError that names an unsupported
// component of tokenizer.json.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory);

}  // namespace draftsmith::data
