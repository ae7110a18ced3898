// Table `shared_encoder` of a train stage: a drafter without an encoder learns to read its target's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/options.h"
#include "recipes/stages/trainable_models.h"

namespace draftsmith::recipes {

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
