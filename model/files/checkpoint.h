// Loading and saving models as Hugging Face directories: config.json, generation_config.json, model.safetensors (or
// shards), and the tokenizer's files. Training writes what decoding reads and other tools load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/aten.h"
#include "model/files/generation_config.h"
#include "model/files/model_directory.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Returns the type of one parameter in a model of type `dtype`: in fp16 some stay fp32.
at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype);

struct LoadOptions {
  at::Device device = at::kCPU;
  // Of the loaded model, whatever is stored; fp16 keeps some weights in fp32. kChar: weights of linear layers in int8
  // with a scale for each output, all other numbers in fp32; packed on CPUs only. kBFloat16 packed on a CPU: likewise
  // only the weights of linear layers, whose inputs and sums are fp32.
  at::ScalarType dtype = at::kFloat;
  // Loads for decoding only, in no more memory than the weights need. Weights in the needed type stay in the mapped
  // files, which may be removed or replaced while the model lives, but not written over in place. Set false if the
  // parameters are to be trained, changed or compared.
  bool pack = true;
};

// Loads an ordinary model. Errors: UserError that names every problem of the directory, see ModelDirectory; in int8 for
// other devices than CPUs, unpacked models, and weights that are not finite. Other kinds are refused: model/models/ has
// functions that load them.
std::unique_ptr<TransformerModel> load_model(const std::filesystem::path& directory, const LoadOptions& options = {});
// Loads the model of an opened directory of any kind.
std::unique_ptr<TransformerModel> load_model(const ModelDirectory& opened, const LoadOptions& options = {});

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

// Refuses a tokenizer with more ids than the model has embeddings; fewer are fine. Errors: UserError.
void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where);

}  // namespace draftsmith::model
