// The tokenizer's files in model directories: copying them, and the settings Transformers needs beside them.
#pragma once

#include <filesystem>

#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Copies a tokenizer into a model directory, with the settings beside it where it comes from one; else with settings
// under which Transformers gives the tokenizer's own ids. A SentencePiece file is named as its family does.
// Errors: RunError and UserError of reading and writing.
void write_tokenizer(const std::filesystem::path& tokenizer, const TransformerConfig& config,
                     const std::filesystem::path& directory);

}  // namespace draftsmith::model
