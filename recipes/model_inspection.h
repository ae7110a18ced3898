// What `inspect` and `verify` say of model directories of every kind: ordinary ones, Tandem secondaries with their
// primary, models of block prediction, deep Tandems; and of the exits inside them (model/kinds/exits.h).
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::recipes {

// Several lines for people. Errors: UserError when it is damaged.
std::string describe_model_directory(const std::filesystem::path& directory);

// Opens and checks everything that belongs to the model; of a Tandem secondary its primary too, whose hash must be the
// recorded one, and of exits that they are this model's. Errors: UserError.
void check_model_directory(const std::filesystem::path& directory);

// The same of a directory of exits; where it lies in a model's directory, it must be that model's.
void check_exits(const std::filesystem::path& directory);

}  // namespace draftsmith::recipes
