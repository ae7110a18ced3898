// Reading the results.json of an evaluation, as whatever uses one needs it: whole.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace draftsmith::recipes {

// The parsed file. Errors: UserError when it cannot be read or lacks what an evaluation writes (names it).
nlohmann::json load_results(const std::filesystem::path& file);

}  // namespace draftsmith::recipes
