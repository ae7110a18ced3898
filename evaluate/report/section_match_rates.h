// Match rates of early predictions in an evaluation suite (infer/forced/match_rates.h), PPD's tables 2 and 5 to 8:
//
//   [[match_rates]]
//   layers = [3, 4, 5]
//   candidates = [1, 3, 5]
//   decoding = ["greedy", "top-k", "top-p"]
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "evaluate/suite/match_rate_options.h"
#include "infer/forced/match_rates.h"

namespace draftsmith::evaluate {

// What results.json holds of them: name, task, model, prompts and cells (match_rates_json).
nlohmann::ordered_json match_rates_entry(const MatchRateTable& asked, const std::string& task, int64_t prompts,
                                         const std::vector<infer::MatchRate>& rates);

// match_rates.csv and, for each decoding, match_rates.DECODING.svg; with the name, where there is one, behind
// "match_rates".
void write_match_rates(const nlohmann::ordered_json& entry, const std::filesystem::path& directory);

// All entries of results.json: for the console, at most 100 columns, and as a section of the report. Empty without any.
std::string match_rates_text(const nlohmann::ordered_json& results);
std::string match_rates_section(const nlohmann::ordered_json& results);

}  // namespace draftsmith::evaluate
