// Saving models as Hugging Face directories: config.json, generation_config.json, model.safetensors (or shards), and
// the tokenizer's files. Training writes what decoding reads (model/files/model_directory.h) and other tools load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/aten.h"
#include "model/files/generation_config.h"
#include "model/files/model_directory.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

struct SaveOptions {
  at::ScalarType dtype = at::kFloat;              // in the files; in fp16 the weights that overflow stay fp32
  uint64_t shard_bytes = 5'000'000'000;           // largest weight file, in bytes
  std::filesystem::path tokenizer;                // spiece.model to copy; empty: none
  std::optional<GenerationConfig> generation;     // absent: the config's token ids alone
  std::optional<CompanionRecord> companion = {};  // for kinds that read another model
};

// Writes a complete model directory of the configuration's kind under a temporary name, then renames it. Missing
// parents are created. Errors: UserError when `directory` exists already (and is not empty) or the tokenizer cannot be
// read; RunError when a weight is NaN or infinite or a write fails. Nothing is left behind in either case.
void save_model(const std::filesystem::path& directory, const TransformerModel& model, const SaveOptions& options = {});

// Writes the files of a model directory into an existing directory, not atomically: callers may write more beside them.
// Errors: as save_model.
void write_model_files(const std::filesystem::path& directory, const TransformerModel& model,
                       const SaveOptions& options = {});

// Copies a tokenizer into a model directory, together with the settings beside it if it comes from one; otherwise with
// settings of T5 or Llama for Transformers. A SentencePiece file gets its family's name. Errors: RunError and UserError
// of reading and writing.
void write_tokenizer(const std::filesystem::path& tokenizer, const TransformerConfig& config,
                     const std::filesystem::path& directory);

// Copies a model into a new directory: the directory's own files, shards in folders, and draftsmith/. The model card
// stays behind, since it describes the directory. Other folders, hidden files and broken links are left out; links
// become files; modes are those of new files. Errors: RunError of reading and writing.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

// ---- New directories of models and other results
// They get their names only when everything in them is written.

// Returns the directory's path without a trailing slash if nothing but perhaps an empty directory lies there. Long runs
// call it before they start. Errors: UserError.
std::filesystem::path require_free_place(const std::filesystem::path& directory);

// Lets `fill` write into an empty directory with a temporary name, then renames it to `directory`. If `fill` throws,
// nothing is left. Missing parents are created. Errors: those of require_free_place(); RunError.
void write_new_directory(const std::filesystem::path& directory,
                         const std::function<void(const std::filesystem::path& temporary)>& fill);

}  // namespace draftsmith::model
