// What a model, corpus, results or stage directory holds, and whether it is still what was written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace draftsmith::recipes {

// A description for people, several lines, at most 100 columns. `path` is a stage directory, a model directory, a
// corpus, a recipe's work directory or a results.json. Errors: UserError when it is none of these or is damaged.
std::string inspect(const std::filesystem::path& path);

// Everything that is wrong with it: files that differ from a stage's DONE, a damaged model, corpus or results.json.
std::vector<Problem> verify(const std::filesystem::path& path);

}  // namespace draftsmith::recipes
