// What `inspect` and `verify` say of model directories of every kind: ordinary ones, Tandem secondaries with their
// primary, models of block prediction, deep Tandems.
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::recipes {

// Several lines for people. Errors: UserError when it is damaged.
std::string describe_model_directory(const std::filesystem::path& directory);

// Opens and checks everything that belongs to the model; of a Tandem secondary its primary too, whose hash must be the
// recorded one. Errors: UserError.
void check_model_directory(const std::filesystem::path& directory);

}  // namespace draftsmith::recipes
