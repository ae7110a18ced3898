// The tokenizer's files in model directories: copying them, the settings Transformers needs beside them, and whether
// prompts begin with BOS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/transformer_config.h"

namespace draftsmith::model {

// Copies a tokenizer into a model directory, with the settings beside it where it comes from one; else with settings
// under which Transformers gives the tokenizer's own ids. A SentencePiece file is named as its family does.
// Errors: RunError and UserError of reading and writing.
void write_tokenizer(const std::filesystem::path& tokenizer, const TransformerConfig& config,
                     const std::filesystem::path& directory);

// What prompts of this decoder-only model begin with: its BOS, where tokenizer_config.json's add_bos_token or else its
// tokenizer_class (Llama's) says so. Nothing for encoder-decoders. Errors: UserError for broken JSON.
std::optional<int64_t> prompt_start(const std::filesystem::path& directory);

}  // namespace draftsmith::model
