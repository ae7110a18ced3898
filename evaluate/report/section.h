// A section of a suite's report: what it shows of a task, whatever the medium. Console, HTML page, Markdown and CSV go
// through the list in sections.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/table.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// How much is shown: kBrief fits in 100 columns (console and Markdown), kFull is for pages.
enum class Form { kBrief, kFull };

// A task among the results that it belongs to.
struct TaskView {
  const Results& results;
  const TaskResult& task;
};

// A table with what stands around it, or plots alone.
struct Part {
  std::string caption = {};  // above the table; newlines separate lines
  Table table = Table();
  std::vector<std::string> notes = {};  // below it
  std::vector<std::string> plots = {};  // SVG
};

// A column of results.csv; null leaves a cell empty.
struct CsvColumn {
  std::string header;
  nlohmann::ordered_json (*value)(const TaskView& view, const SettingResult& setting);
};
// Returns the cell of a number; null for unknown and absent ones.
nlohmann::ordered_json csv_number(const std::optional<double>& value);

struct Section {
  std::string title = {};  // heading on pages; empty: none
  // Returns what there is to show; nothing leaves the section out.
  std::vector<Part> (*parts)(const TaskView& view, Form form) = nullptr;
  std::vector<CsvColumn> csv = {};
};

// The leading score of a task's metric: its name (empty if nothing is scored), shown digits and the size of one point.
struct ScoreStyle {
  std::string name;
  int digits = 2;
  double point = 1;
};
ScoreStyle score_style(const TaskResult& task);

// Returns a number with that many digits behind the point; empty for unknown and absent ones.
std::string fixed(double value, int digits);
std::string fixed(const std::optional<double>& value, int digits);

}  // namespace draftsmith::evaluate
