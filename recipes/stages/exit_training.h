// Table `exits` of a train stage: the whole model is trained with losses at several layers.
#pragma once

#include <filesystem>
#include <memory>

#include "recipes/stages/trainable_models.h"
#include "train/trainable/exit_trainables.h"

namespace draftsmith::recipes {

// Returns the model with exits. `from` is the model's directory, empty for random weights. If it has exits, norms of
// the same layers start from theirs. Errors: UserError for layers outside the model, and for exits in `from` that are
// damaged or belong to another model.
TrainableModels exit_trainable(const train::ExitTrainingOptions& options,
                               std::unique_ptr<model::TransformerModel> model, const std::filesystem::path& from);

}  // namespace draftsmith::recipes
