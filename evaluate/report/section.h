// Section of a suite's report: tables, notes, plots and CSV columns of a task, for every medium. Console, HTML page,
// Markdown and CSV use the list in sections.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

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

// Table with caption, notes and plots, or plots alone.
struct Part {
  std::string caption = {};  // above the table; newlines separate lines
  Table table = Table();
  std::vector<std::string> notes = {};  // below the table
  std::vector<std::string> plots = {};  // SVG
};

// Column of results.csv. A null value leaves the cell empty.
struct CsvColumn {
  std::string header;
  nlohmann::ordered_json (*value)(const TaskView& view, const SettingResult& setting);
};
// Returns the cell of a number; null for an unknown or absent number.
nlohmann::ordered_json csv_number(const std::optional<double>& value);

// Part of a report that shows one aspect of a task.
struct Section {
  std::string title = {};  // heading on pages; empty: none
  // Returns the parts to show; an empty list leaves the section out.
  std::vector<Part> (*parts)(const TaskView& view, Form form) = nullptr;
  std::vector<CsvColumn> csv = {};
};

// Leading score of a task's metric: name (empty if nothing is scored), shown digits and size of a point.
struct ScoreStyle {
  std::string name;
  int digits = 2;
  double point = 1;
};
// Returns the leading score of the task's metric.
ScoreStyle score_style(const TaskResult& task);

// Return a number with that many digits behind the point; empty for an unknown or absent number.
std::string fixed(double value, int digits);
std::string fixed(const std::optional<double>& value, int digits);

}  // namespace draftsmith::evaluate
