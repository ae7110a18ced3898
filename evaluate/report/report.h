// A suite's results for readers: as text for the console, a spreadsheet, an HTML page and a Markdown page. All go
// through the same sections (evaluate/report/sections.h).
#pragma once

#include <filesystem>
#include <string>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the tables of each task for the console, at most 100 columns wide, with notes on what needs attention
// (measurement errors, inexact lossless settings). Speedup is end to end (mean over lines), decode without encoder and
// prefill, theory what is predicted of the latter, runs those of target + drafter for each output.
std::string results_table(const Results& results);

// Returns one line for each setting of each task; absent values are empty.
std::string results_csv(const Results& results);

// Returns one self-contained page with tables and inline SVG plots.
std::string report_html(const Results& results);

// Returns the tables as a Markdown page, whose first line says what was measured, with which command, commit, machine
// and threads, and when.
std::string report_markdown(const Results& results);

// Writes match_rates.csv and, for each decoding, match_rates.DECODING.svg, both with the name, if any, behind
// "match_rates".
void write_match_rates(const MatchRateResult& rates, const std::filesystem::path& directory);

}  // namespace draftsmith::evaluate
