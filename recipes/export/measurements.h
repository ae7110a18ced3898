// What an evaluation says of one model, for its card.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace draftsmith::recipes {

// Measurements of one model, cut out of a results.json.
struct CardMeasurements {
  nlohmann::json environment;
  nlohmann::json tasks;  // as in results.json, with the runs that concern the model
};

// The runs of an evaluation that `model` takes part in, as drafter or decoding alone; all of them when it is the
// target. Errors: UserError when the file is no results.json or does not measure this model (says which it measures).
CardMeasurements measurements_of(const std::filesystem::path& results, const std::filesystem::path& model);

}  // namespace draftsmith::recipes
