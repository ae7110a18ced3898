// The tables `tandem` and `deep_tandem` of a train stage: several models are trained together.
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
  std::optional<ArchitectureOptions> large;  // always there in valid options
  int64_t block = 2;
  static Fields<DeepTandemTrainingOptions> fields();
};

// The start of a Tandem's secondary.
struct TandemBeginning {
  std::filesystem::path from = {};  // a model directory, ordinary or of a Tandem; empty: `fresh`
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
// bf16 where training computes in bf16 and the device multiplies it fast; else fp32.
at::ScalarType frozen_primary_type(const std::string& precision, at::Device device);

// Loads and makes the two models. Errors: UserError: what the directories lack, models that do not fit each other
// (naming both), a layer map out of range, options of a new secondary where it begins from a Tandem.
TrainableModels tandem_trainable(const TandemTrainingOptions& options, TandemBeginning beginning,
                                 const TandemPlace& place);

// Whether `model` is the primary, here or in a copy, and stays what it is: then it need not be loaded again as a
// teacher. `from` as in TandemBeginning. Errors: as primary_of and model::model_hash.
bool is_frozen_primary(const TandemTrainingOptions& options, const std::filesystem::path& from,
                       const std::filesystem::path& model);

// Where the primary lies: the option, or what the Tandem directory `from` names. Errors: UserError for neither.
std::filesystem::path primary_of(const TandemTrainingOptions& options, const std::filesystem::path& from);

}  // namespace draftsmith::recipes
