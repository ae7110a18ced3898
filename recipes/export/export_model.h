// `draftsmith export`: writes a model for other engines, as a Hugging Face directory or as a GGUF file, which Python's
// `gguf` writes (recipes/export/export_gguf.py). What an engine does not run is refused before anything is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/aten.h"
#include "base/child_process.h"
#include "base/options.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {

struct ExportOptions {
  std::filesystem::path model = {};  // directory to export
  std::filesystem::path out = {};    // new directory; of GGUF a new file
  std::string format = "hf";
  std::string dtype = "stored";
  std::optional<std::filesystem::path> target = {};
  int64_t shard_megabytes = 5000;
  static Fields<ExportOptions> fields();  // all but model and out
};

struct ExportSummary {
  std::string dtype;      // type of the files: "F32", "BF16", "F16", "F64", "Q8_0"
  size_t parameters = 0;  // tensors of the model
  int64_t eagle3 = 0;     // tokens that an EAGLE-3 drafter was trained to draft; 0: the files are none's
};

// Exports a model, which appears under its name when it is complete. Errors: UserError for unusable options, models and
// files, a type that cannot hold the model's values, and a missing Python package; RunError if a write fails or a
// weight is not finite. After an error, there is no `out`.
ExportSummary export_model(const ExportOptions& options);

// What CMake embeds: the parts of the script that writes GGUF files, in order.
std::span<const EmbeddedText> export_texts();
// Exports a features drafter as an EAGLE-3 directory (recipes/export/eagle3_model.cpp). Errors: as export_model(), and
// for drafters that such a directory cannot hold.
ExportSummary export_eagle3(const ExportOptions& options);
// Refuses a features drafter that the format cannot hold or that changed since it was made. Errors: UserError.
void require_eagle3(const ExportOptions& options, const model::TransformerConfig& config);

// Returns the type of a directory's weights: the widest one, ignoring fp32 parameters that an fp16 model must keep.
at::ScalarType stored_type(const model::ModelDirectory& opened);
// Loads a model to be written again: in fp64 if the files' type is, else in fp32.
std::unique_ptr<model::TransformerModel> load_whole(const model::ModelDirectory& opened, at::ScalarType stored);
// Returns the type of the files by --dtype.
at::ScalarType type_for(const ExportOptions& options, at::ScalarType stored);
// Refuses a finite value beyond the largest of the type, and a matrix that would be zero. Errors: UserError.
void require_fits(const ExportOptions& options, const std::string& name, const at::Tensor& values, at::ScalarType type);

// Returns for each format why it cannot hold the model in a directory, which may be of any kind; empty: it can.
std::map<std::string, std::string> export_refusals(const std::filesystem::path& model);

// Returns the shell command by which vLLM serves a target with an exported drafter; `eagle3` as in ExportSummary.
std::string vllm_command(const std::filesystem::path& target, const std::filesystem::path& drafter, int64_t eagle3 = 0);

}  // namespace draftsmith::recipes
