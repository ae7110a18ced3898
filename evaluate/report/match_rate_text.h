// Match rates as CSV, JSON and tables of at most 100 columns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/forced/match_rates.h"

namespace draftsmith::evaluate {

// Returns lines of "decoding,layer,k,head,positions,matches,tokens,rate", head "own" or "trained".
std::string match_rates_csv(std::span<const infer::MatchRate> rates);

// Convert match rates to and from results.json: a list of objects with the names of the CSV columns. Errors:
// nlohmann::json::exception.
nlohmann::ordered_json match_rates_json(std::span<const infer::MatchRate> rates);
std::vector<infer::MatchRate> match_rates_from_json(const nlohmann::ordered_json& json);

// Returns the totals of all decodings (tables 2 and 5) for the console: a row for each layer, k and head.
std::string match_totals_table(std::span<const infer::MatchRate> rates);
// Returns the rates of one decoding by position (tables 6 to 8) for the console.
std::string match_positions_table(std::span<const infer::MatchRate> rates, const std::string& decoding);

}  // namespace draftsmith::evaluate
