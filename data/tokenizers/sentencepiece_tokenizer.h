// SentencePiece models (Kudo and Richardson 2018): spiece.model of T5, tokenizer.model of Llama.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Errors: UserError for a missing file and for a file that is not a SentencePiece model.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file);

// Returns whether an existing file is a SentencePiece model.
bool is_sentencepiece(const std::filesystem::path& file);

}  // namespace draftsmith::data
