// results.json as a table for the console and as a spreadsheet.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "evaluate/report/run_table.h"

namespace draftsmith::evaluate {

// One table a task, at most 100 columns wide: speedup is end to end (mean over lines), decode without encoder and
// prefill, theory what is predicted of the latter, runs those of target + drafter for each output. Below it what is
// notable (measurement errors, inexact lossless runs). Long names of runs take several lines.
std::string results_table(const nlohmann::ordered_json& results);

// One line for each run of each task; absent values are empty.
std::string results_csv(const nlohmann::ordered_json& results);

}  // namespace draftsmith::evaluate
