// What stages write into the files they make about what those were made of.
#pragma once

#include <filesystem>
#include <string>

#include "recipes/stage.h"

namespace draftsmith::recipes {

// An input as the recipe's author named it: paths differ from one way of writing --work to another. Outside of recipes
// the path.
std::string input_name(const StageContext& run, const std::string& option, const std::filesystem::path& path);

}  // namespace draftsmith::recipes
