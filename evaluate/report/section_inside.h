// What evaluations say of methods inside the model (early-exit, exits as drafters, calm, ppd), from results.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// For the console, at most 100 columns: a row for each such run with its layers a token, where tokens leave or are
// predicted, and PPD's match rate, theorem and simulation; below it what one device makes of PPD, in words. Empty
// without such runs.
std::string inside_table(const nlohmann::ordered_json& task);

// The same as HTML, with where calm's tokens leave as a plot.
std::string inside_section(const nlohmann::ordered_json& task);

}  // namespace draftsmith::evaluate
