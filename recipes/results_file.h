// Reader of an evaluation's results.json.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace draftsmith::recipes {

// Reads a results.json. Errors: UserError if it cannot be read, and for a part that an evaluation writes but it lacks.
nlohmann::json load_results(const std::filesystem::path& file);

}  // namespace draftsmith::recipes
