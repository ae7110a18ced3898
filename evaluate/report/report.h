// Reports of a suite's results: console text, spreadsheet, HTML page and Markdown page. All are made of the same
// sections (evaluate/report/sections.h).
#pragma once

#include <filesystem>
#include <string>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the tables of each task for the console, at most 100 columns wide, and the headlines at the end. Notes report
// measurement errors and lossless settings that differ. Speedup is end to end (mean over lines), decode is without
// encoder and prefill, and theory predicts decode. Runs are those of target + drafter per output.
std::string results_table(const Results& results);

// Returns the tables of throughput and latency of each task for the console, which results_table() leaves out.
std::string latency_tables(const Results& results);

// Returns the lines of results_csv() as a list of objects, whose keys are the columns. Absent values are null.
nlohmann::ordered_json results_rows(const Results& results);

// Returns a CSV file with a line for each setting of each task. Absent values are empty.
std::string results_csv(const Results& results);

// Returns one self-contained page with tables and plots, which needs no other file and no network. Without scripts it
// shows the same tables, and no plots.
std::string report_html(const Results& results);

// Returns the tables as a Markdown page. Its head has the headlines, suite, commit, date, machine, threads and command.
std::string report_markdown(const Results& results);

// Writes match_rates.csv. A name of the rates follows "match_rates".
void write_match_rates(const MatchRateResult& rates, const std::filesystem::path& directory);

// Writes engagement.csv. A name of the curve follows "engagement".
void write_engagement(const EngagementResult& curve, const std::filesystem::path& directory);

}  // namespace draftsmith::evaluate
