// The part of an evaluation that concerns one model, for its card.
#pragma once

#include <filesystem>

#include "evaluate/results/results.h"

namespace draftsmith::recipes {

// Returns the results of the settings that `model` takes part in, as drafter or decoding alone; all settings when it is
// the target. Tasks without such a setting are left out. Errors: UserError when the file is no results.json or does not
// measure this model (names the models that it measures).
evaluate::Results measurements_of(const std::filesystem::path& results, const std::filesystem::path& model);

}  // namespace draftsmith::recipes
