// Provenance of files that stages make.
#pragma once

#include <filesystem>
#include <string>

#include "recipes/stage.h"

namespace draftsmith::recipes {

// Returns the name of an input in the recipe, which does not depend on --work. Outside of recipes, returns the path.
std::string input_name(const StageContext& run, const std::string& option, const std::filesystem::path& path);

}  // namespace draftsmith::recipes
