// Tables `tandem` and `deep_tandem` of a train stage: several models are trained together.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/options.h"
#include "model/kinds/deep_tandem.h"
#include "model/kinds/exits.h"
#include "model/kinds/tandem.h"
#include "recipes/architecture.h"
#include "train/trainable/tandem_trainable.h"

namespace draftsmith::recipes {

struct TandemTrainingOptions {
  std::optional<std::filesystem::path> primary;
  std::vector<int64_t> layer_map;
  std::optional<int64_t> block;
  std::optional<std::string> projections;
  uint64_t seed = 1;
  std::string configuration = "primary_frozen";
  bool copy_primary = false;
  static Fields<TandemTrainingOptions> fields();
};

struct DeepTandemTrainingOptions {
  std::optional<ArchitectureOptions> large;  // present in valid options
  int64_t block = 2;
  static Fields<DeepTandemTrainingOptions> fields();
};

// The start of a Tandem's secondary.
struct TandemBeginning {
  std::filesystem::path from = {};                           // directory of a model or of a Tandem; empty: `fresh`
  std::unique_ptr<model::TransformerModel> fresh = nullptr;  // an ordinary model of random weights
};

// A trainable model, and the models that it works on.
struct TrainableModels {
  std::vector<std::unique_ptr<model::TransformerModel>> models = {};
  std::unique_ptr<model::DeepTandemModel> deep = nullptr;
  std::unique_ptr<model::Exits> exits = nullptr;
  std::unique_ptr<train::TrainableModel> trainable = nullptr;
};

// Loading of the models: a frozen primary runs in its own type, since it is not updated.
struct TandemPlace {
  at::Device device = at::kCPU;
  at::ScalarType frozen_primary = at::kFloat;
};
// Returns bf16 if training computes in bf16 and the device multiplies bf16 fast; else fp32.
at::ScalarType frozen_primary_type(const std::string& precision, at::Device device);

// Loads or makes the two models. Errors: UserError for incomplete directories, models that do not fit each other
// (naming both), a layer map out of range, and options of a new secondary if `from` is a Tandem.
TrainableModels tandem_trainable(const TandemTrainingOptions& options, TandemBeginning beginning,
                                 const TandemPlace& place);

// Returns whether `model` is the frozen primary or a copy of it, so that it need not be loaded again as a teacher.
// `from` as in TandemBeginning. Errors: as primary_of and model::model_hash.
bool is_frozen_primary(const TandemTrainingOptions& options, const std::filesystem::path& from,
                       const std::filesystem::path& model);

// Returns the primary's directory: the option, or the one that the Tandem directory `from` names. Errors: UserError if
// there is neither.
std::filesystem::path primary_of(const TandemTrainingOptions& options, const std::filesystem::path& from);

}  // namespace draftsmith::recipes
