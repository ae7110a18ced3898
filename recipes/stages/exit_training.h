// The table `exits` of a train stage: a whole model is trained with losses at several layers.
#pragma once

#include <filesystem>
#include <memory>

#include "recipes/stages/tandem_training.h"
#include "train/trainable/exit_options.h"

namespace draftsmith::recipes {

// The model with exits. `from`, the directory that the model was loaded from, may hold exits already: norms of the same
// layers go on from theirs; empty: random weights. Errors: UserError for layers outside the model, and for exits in
// `from` that are damaged or of another model.
TrainableModels exit_trainable(const train::ExitTrainingOptions& options,
                               std::unique_ptr<model::TransformerModel> model, const std::filesystem::path& from);

}  // namespace draftsmith::recipes
