// Tokenizer files in model directories: copies of them, and the settings that Transformers needs beside them.
#pragma once

#include <filesystem>

#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Copies a tokenizer into a model directory, together with the settings beside it if it comes from one; otherwise with
// settings under which Transformers gives the tokenizer's own ids. A SentencePiece file gets its family's name. Errors:
// RunError and UserError of reading and writing.
void write_tokenizer(const std::filesystem::path& tokenizer, const TransformerConfig& config,
                     const std::filesystem::path& directory);

}  // namespace draftsmith::model
