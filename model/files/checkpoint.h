// Loading and saving models as Hugging Face directories: config.json, generation_config.json, model.safetensors (or
// shards), and the tokenizer's files. What training writes is what the runner reads and what other tools load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/aten.h"
#include "model/files/generation_config.h"
#include "model/files/model_directory.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

struct LoadOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // of the loaded model, whatever is stored; fp16 keeps some weights in fp32
  // For decoding alone, in no more memory than the weights need: what is stored as it is needed stays in the mapped
  // files, which may be removed or replaced while the model lives, but not written over in place. false where the
  // parameters are to be trained, changed or compared.
  bool pack = true;
};

// Errors: UserError that names every problem of the directory; see ModelDirectory. Models of kinds of our own are
// refused: model/kinds/tandem.h, model/kinds/block_prediction.h and model/kinds/deep_tandem.h load those.
std::unique_ptr<TransformerModel> load_model(const std::filesystem::path& directory, const LoadOptions& options = {});
// Of a directory that is open, of any kind.
std::unique_ptr<TransformerModel> load_model(const ModelDirectory& opened, const LoadOptions& options = {});

// Generation settings of a directory. Errors: as load_config.
GenerationConfig load_generation_config(const std::filesystem::path& directory);

struct SaveOptions {
  at::ScalarType dtype = at::kFloat;           // in the files; in fp16 the weights that overflow stay fp32
  uint64_t shard_bytes = 5'000'000'000;        // largest weight file, in bytes
  std::filesystem::path tokenizer;             // spiece.model to copy; empty: none
  std::optional<GenerationConfig> generation;  // absent: the config's token ids alone
  // Adds to config.json what the model's configuration does not hold: a Tandem secondary names its primary.
  std::function<void(nlohmann::ordered_json& config_json)> add_to_config = {};
};

// Writes a complete model directory, of the kind that the configuration is of, under a temporary name, then renames it.
// Missing parents are created. Errors: UserError when `directory` exists already (and is not empty) or the tokenizer
// cannot be read; RunError when a weight is NaN or infinite or a write fails. Nothing is left behind in either case.
void save_model(const std::filesystem::path& directory, const TransformerModel& model, const SaveOptions& options = {});

// The files of a model directory, into a directory that is there. Not atomic: for who writes more beside them. Errors:
// as save_model.
void write_model_files(const std::filesystem::path& directory, const TransformerModel& model,
                       const SaveOptions& options = {});

// A tokenizer may not have more ids than the model has embeddings; fewer are padding. Errors: UserError.
void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where);

}  // namespace draftsmith::model
