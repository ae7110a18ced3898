// The subjects of a train stage: the models that it starts from or makes, those that stay frozen beside them, and the
// trainable model over them all. Tables `exits`, `tandem`, `deep_tandem` and `shared_encoder`.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/options.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/tandem.h"
#include "model/transformer/transformer_model.h"
#include "recipes/architecture.h"
#include "train/trainable/exit_trainables.h"
#include "train/trainable/tandem_trainables.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::recipes {

// A trainable model, and the models that it works on.
struct TrainableModels {
  std::vector<std::unique_ptr<model::TransformerModel>> models = {};
  std::unique_ptr<model::DeepTandemModel> deep = nullptr;
  std::unique_ptr<model::Exits> exits = nullptr;
  std::unique_ptr<train::TrainableModel> trainable = nullptr;
};

// The start of a model that is trained with another one.
struct Beginning {
  std::filesystem::path from = {};                           // directory of a model; empty: `fresh`
  std::unique_ptr<model::TransformerModel> fresh = nullptr;  // an ordinary model of random weights
};

// Loading of models: a frozen one runs in its own type, since it is not updated.
struct ModelPlace {
  at::Device device = at::kCPU;
  at::ScalarType frozen = at::kFloat;
};
// Returns bf16 if `precision` is "bf16" and the device is not a CPU; else fp32.
at::ScalarType frozen_type(const std::string& precision, at::Device device);
// Returns whether two directories hold the same model. Errors: as model::model_hash.
bool is_same_model(const std::filesystem::path& one, const std::filesystem::path& other);

// ---- Table `exits`: the whole model is trained with losses at several layers

// Returns the model with exits. `from` is the model's directory, empty for random weights. If it has exits, norms of
// the same layers start from theirs. Errors: UserError for layers outside the model, and for exits in `from` that are
// damaged or belong to another model.
TrainableModels exit_trainable(const train::ExitTrainingOptions& options,
                               std::unique_ptr<model::TransformerModel> model, const std::filesystem::path& from);

// ---- Tables `tandem` and `deep_tandem`: several models are trained together

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

// Loads or makes the two models. Errors: UserError for incomplete directories, models that do not fit each other
// (naming both), a layer map out of range, and options of a new secondary if `from` is a Tandem.
TrainableModels tandem_trainable(const TandemTrainingOptions& options, Beginning beginning, const ModelPlace& place);

// Returns whether `model` is the frozen primary or a copy of it, so that it need not be loaded again as a teacher.
// `from` as in Beginning. Errors: as primary_of and model::model_hash.
bool is_frozen_primary(const TandemTrainingOptions& options, const std::filesystem::path& from,
                       const std::filesystem::path& model);

// ---- Table `shared_encoder`: a drafter without an encoder learns to read its target's

struct SharedEncoderTrainingOptions {
  std::optional<std::filesystem::path> target;
  std::optional<std::string> projection;
  uint64_t seed = 1;
  static Fields<SharedEncoderTrainingOptions> fields();
};

// Returns the target's directory: the option, or the one that such a drafter's directory `from` names. Errors:
// UserError if there is neither.
std::filesystem::path target_of(const SharedEncoderTrainingOptions& options, const std::filesystem::path& from);

// Loads or makes the drafter, first of the models, and its target, the second. The trainable model learns from the
// target if it `teaches`. Errors: UserError for incomplete directories, models that do not fit each other (naming
// both), and options of a new projection if `from` is such a drafter.
TrainableModels shared_encoder_trainable(const SharedEncoderTrainingOptions& options, Beginning beginning,
                                         const ModelPlace& place, bool teaches);

}  // namespace draftsmith::recipes
