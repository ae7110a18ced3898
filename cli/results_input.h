// Results of evaluations that commands read.
#pragma once

#include <filesystem>

namespace draftsmith::cli {

// Returns the file of results that the user named, or named the directory of: of an evaluation, a stage or a recipe's
// work. Errors: UserError if there is none, or several.
std::filesystem::path find_results(const std::filesystem::path& path);

}  // namespace draftsmith::cli
