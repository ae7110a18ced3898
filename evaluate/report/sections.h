// Sections of a suite's report, and what they share. A section gives tables, notes and plots of a task, and columns of
// results.csv. Console, HTML page and Markdown show the sections in the order of sections().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/plots.h"
#include "base/table.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Detail of a report: kBrief fits in 100 columns (console, Markdown), kFull is for pages.
enum class Form { kBrief, kFull };

// Task with the results that it belongs to.
struct TaskView {
  const Results& results;
  const TaskResult& task;
};

// Plot of a page, which draws it as wide as its window.
struct Figure {
  std::string caption = {};          // what to see in it
  nlohmann::ordered_json data = {};  // of base/plots.h, for evaluate/report/page/plots.page.js
};
template <class AnyPlot>
Figure figure_of(const AnyPlot& plot, std::string caption) {
  return {std::move(caption), plot.json()};
}

// Table with caption, notes and figures, or one of these alone. Notes on errors begin with "!".
struct Part {
  std::string caption = {};  // above the table; newlines separate lines
  Table table = Table();
  std::vector<std::string> notes = {};  // below the table
  std::vector<Figure> figures = {};
  std::string html = {};  // of pages alone, where neither table nor figure will do
};

// Line of results.csv: values by column. A null value leaves the cell empty.
using CsvRow = nlohmann::ordered_json;

// Part of a report that shows one aspect of a task.
struct Section {
  std::string title;  // heading on pages
  // Returns the parts of a task. An empty list leaves the section out.
  std::vector<Part> (*parts)(const TaskView& view, Form form);
  // Adds the columns of a setting, the same ones for every setting; nullptr: the section has none.
  void (*add_columns)(const TaskView& view, const SettingResult& setting, CsvRow& row) = nullptr;
  bool on_request = false;  // the console leaves the section out unless it is asked for
};

// Returns all sections in their order. A new one is a function below and a line in sections.cpp.
const std::vector<Section>& sections();

// speed.cpp
std::vector<Part> quality_speed_parts(const TaskView& view, Form form);  // all settings as points
std::vector<Part> category_parts(const TaskView& view, Form form);       // speedups by category of a data set
std::vector<Part> time_parts(const TaskView& view, Form form);           // throughput, percentiles of times, phases
void add_time_columns(const TaskView& view, const SettingResult& setting, CsvRow& row);
// settings.cpp
std::vector<Part> setting_parts(const TaskView& view, Form form);  // quality, speed and acceptance
void add_setting_columns(const TaskView& view, const SettingResult& setting, CsvRow& row);
// theory.cpp
std::vector<Part> theory_parts(const TaskView& view, Form form);  // predicted speed, best windows (SpecGame)
// drafters.cpp
std::vector<Part> drafter_parts(const TaskView& view, Form form);  // how well drafters predict texts
void add_drafter_columns(const TaskView& view, const SettingResult& setting, CsvRow& row);
std::vector<Part> position_parts(const TaskView& view, Form form);  // acceptance by place in the draft
// self_drafting.cpp
std::vector<Part> layer_parts(const TaskView& view, Form form);  // layers that ran, where tokens left
void add_layer_columns(const TaskView& view, const SettingResult& setting, CsvRow& row);
std::vector<Part> match_rate_parts(const TaskView& view, Form form);  // PPD's tables 2 and 5 to 8
// bild_figures.cpp
std::vector<Part> work_parts(const TaskView& view, Form form);  // operations and bytes, figure 8
void add_work_columns(const TaskView& view, const SettingResult& setting, CsvRow& row);
std::vector<Part> engagement_parts(const TaskView& view, Form form);  // figure 2
std::vector<Part> example_parts(const TaskView& view, Form form);     // outputs by their tokens' origins, figure 9

// Leading score of a task's metric: name (empty if nothing is scored), shown digits and size of a point.
struct ScoreStyle {
  std::string name = {};
  int digits = 2;
  double point = 1;
  bool lower_is_better = false;

  // Returns how much worse `to` is than `from`; negative: better.
  double loss(double from, double to) const { return lower_is_better ? to - from : from - to; }
};
// Returns the leading score of the task's metric.
ScoreStyle score_style(const TaskResult& task);
// Returns a score's name as papers write it: "BLEU", "chrF", "ROUGE-L".
std::string score_words(const std::string& score);

// Return a number with that many digits behind the point; empty for an unknown or absent number.
std::string fixed(double value, int digits);
std::string fixed(const std::optional<double>& value, int digits);

// Return a value of a line of results.csv; null for an unknown or absent number.
CsvRow csv_cell(double value);
CsvRow csv_cell(int64_t value);
template <class T>
CsvRow csv_cell(const std::optional<T>& value) {
  return value ? csv_cell(*value) : CsvRow();
}
// Returns a member of what a setting may lack.
template <class T, class Value>
CsvRow csv_cell(const std::optional<T>& part, Value T::*member) {
  return part ? csv_cell((*part).*member) : CsvRow();
}

// Settings that a plot has room for.
struct ShownSettings {
  std::vector<const SettingResult*> settings;  // in the order of the task
  std::string left_out;                        // for a caption: " Shown: the 24 fastest of 500."; empty: none is
};
// Returns the settings that `shown` holds for, the baseline included, at most `limit` and then the fastest.
ShownSettings fastest_settings(const TaskResult& task, size_t limit, bool (*shown)(const SettingResult& setting));

// Settings that the headline of a task names; nullptr: there is none.
struct Best {
  const SettingResult* lossless = nullptr;  // the fastest whose checks of losslessness passed
  const SettingResult* near = nullptr;      // the fastest that loses at most one point, and is faster than `lossless`
  bool lossy = false;                       // there are settings that may lose quality
};
// Returns the best settings among those that are compared with the task's own baseline. Settings with failed lines or
// wrong measurements, repeated baselines and settings without a speedup do not count.
Best best_settings(const TaskResult& task);
// Returns the sentence: "Lossless methods are up to 2.41 × as fast at the same BLEU (...); the best within one point of
// BLEU is 2.93 × as fast (...)." Empty if no setting can be compared.
std::string headline(const TaskResult& task);
// Returns the headlines of all tasks but those on which settings are chosen, with the tasks' names if there are
// several.
std::vector<std::string> headlines(const Results& results);

// Returns the tasks in the order of pages. Tasks on which settings were chosen follow the others; within either group
// the results' own order stays.
std::vector<const TaskResult*> page_order(const Results& results);
// Returns a task's heading. That of a task on which settings were chosen says so.
std::string task_heading(const TaskResult& task);
// Returns what a task on which settings were chosen was for: the rows of other tasks that were chosen there, and that
// its numbers are not those to report. Empty for other tasks.
std::string task_purpose(const Results& results, const TaskResult& task);

}  // namespace draftsmith::evaluate
