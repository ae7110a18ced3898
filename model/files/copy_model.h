// Copies within model directories: tokenizer files with the settings that Transformers needs beside them, and whole
// models, for results that contain an unchanged one.
#pragma once

#include <filesystem>

#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Copies a tokenizer into a model directory, together with the settings beside it if it comes from one; otherwise with
// settings under which Transformers gives the tokenizer's own ids. A SentencePiece file gets its family's name. Errors:
// RunError and UserError of reading and writing.
void write_tokenizer(const std::filesystem::path& tokenizer, const TransformerConfig& config,
                     const std::filesystem::path& directory);

// Copies a model into a new directory: the directory's own files, shards in folders, and draftsmith/. The model card
// stays behind, since it describes the directory. Other folders, hidden files and broken links are left out; links
// become files; modes are those of new files. Errors: RunError of reading and writing.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace draftsmith::model
