// Descriptions and checks of model directories for `inspect` and `verify`: ordinary models, Tandem secondaries with
// their primary, drafters that share their target's encoder, models of block prediction, deep Tandems, and exits inside
// models (model/kinds/exits.h).
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::recipes {

// Returns a description of several lines. Errors: UserError if the model is damaged.
std::string describe_model_directory(const std::filesystem::path& directory);

// Opens and checks all parts of a model. The model that a Tandem secondary, or a drafter with a shared
// encoder, reads must have the recorded hash; exits must belong to this model. Errors: UserError.
void check_model_directory(const std::filesystem::path& directory);

// Opens and checks a directory of exits. Exits inside a model's directory must belong to that model. Errors: UserError.
void check_exits(const std::filesystem::path& directory);

}  // namespace draftsmith::recipes
