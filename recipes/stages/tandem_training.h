// Tables `tandem` and `deep_tandem` of a train stage: several models are trained together.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/models/tandem.h"
#include "recipes/architecture.h"
#include "recipes/stages/trainable_models.h"
#include "train/trainable/tandem_trainables.h"

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

// Loads or makes the two models. Errors: UserError for incomplete directories, models that do not fit each other
// (naming both), a layer map out of range, and options of a new secondary if `from` is a Tandem.
TrainableModels tandem_trainable(const TandemTrainingOptions& options, Beginning beginning, const ModelPlace& place);

// Returns whether `model` is the frozen primary or a copy of it, so that it need not be loaded again as a teacher.
// `from` as in Beginning. Errors: as primary_of and model::model_hash.
bool is_frozen_primary(const TandemTrainingOptions& options, const std::filesystem::path& from,
                       const std::filesystem::path& model);

// Returns the primary's directory: the option, or the one that the Tandem directory `from` names. Errors: UserError if
// there is neither.
std::filesystem::path primary_of(const TandemTrainingOptions& options, const std::filesystem::path& from);

// Table `shared_encoder` of a train stage: a drafter without an encoder learns to read its target's.

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
