// Option `continue_from` of stages that train: which of a stage's inputs a stage that continues it must share.
#pragma once

#include <set>
#include <string>

#include "recipes/stage.h"
#include "train/trainer_inputs.h"

namespace draftsmith::recipes {

// Help text of the option.
extern const char* const kContinueFromHelp;

// Sets what `inputs` say about the stage's options but `training` and `continue_from`: inputs are named by their
// hashes. `of_validation`: options that validation alone reads. Outside of recipes, inputs are not known.
void describe_inputs(train::TrainerInputs& inputs, const StageContext& run, const std::set<std::string>& of_validation);

}  // namespace draftsmith::recipes
