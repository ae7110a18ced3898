// Reports of a suite's results: console text, spreadsheet, HTML page and Markdown page. All are made of the same
// sections (evaluate/report/sections.h).
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/util.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the tables of each task for the console, at most 100 columns wide, and the headlines at the end.
std::string results_table(const Results& results);

// Returns an object for each setting of each task, with the values of results.json by their keys: "task", "name",
// "speed.speedup". All have the same keys; absent values are null.
nlohmann::ordered_json results_rows(const Results& results);

// Returns results_rows() as a CSV file. Absent values are empty.
std::string results_csv(const Results& results);

// Returns one self-contained page with tables and plots, which needs no other file and no network. Without scripts it
// shows the same tables, and no plots.
std::string report_html(const Results& results);

// Returns a Markdown page. It has the first task's headline, marks for what people write, commit, date, machine,
// `wall_time` (a sentence without its full stop), command, its leading rows, and a line for each other task.
std::string report_markdown(const Results& results, const std::string& wall_time = "");

// Returns a page with what is between the marks of an earlier one, which errors name `where`. Errors: UserError if the
// marks are not as many.
std::string keep_handwritten(std::string page, const std::string& earlier, const std::string& where);

// Returns style sheet and scripts of report_html()'s pages (cmake/page.cmake): evaluate/report/page/, and before them,
// as they must run, those of the library D3 (BSD-3-Clause; its licence goes with it into every page).
std::span<const EmbeddedText> page_texts();

}  // namespace draftsmith::evaluate
