// Section of a suite's report: tables, notes, plots and CSV columns of a task, for every medium. Console, HTML page,
// Markdown and CSV use the list in sections.h.
#pragma once

#include <optional>
#include <string>
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

// Plot of a page: a picture, and its data for pages that draw it as wide as their window.
struct Figure {
  std::string caption = {};          // what to see in it
  std::string svg = {};              // shown on paper, and where no script runs
  nlohmann::ordered_json data = {};  // for evaluate/report/page/plots.page.js; null: the picture is all there is
};
// Returns the figure of a plot: base/plots.h.
template <class AnyPlot>
Figure figure_of(const AnyPlot& plot, std::string caption = {}) {
  return {std::move(caption), plot.svg(), plot.json()};
}

// Table with caption, notes and figures, or one of these alone. Notes on errors begin with "!".
struct Part {
  std::string caption = {};  // above the table; newlines separate lines
  Table table = Table();
  std::vector<std::string> notes = {};  // below the table
  std::vector<Figure> figures = {};
  std::string html = {};  // of pages alone, where neither table nor figure will do
};

// Column of results.csv. A null value leaves the cell empty.
struct CsvColumn {
  std::string header;
  nlohmann::ordered_json (*value)(const TaskView& view, const SettingResult& setting);
};
// Returns the cell of a number; null for an unknown or absent number.
nlohmann::ordered_json csv_number(const std::optional<double>& value);

// Wish without which the console leaves a section out; other reports have it always.
enum class Request { kNone, kLatency };

// Part of a report that shows one aspect of a task, or of all results. An empty list of parts leaves it out.
struct Section {
  std::string title = {};  // heading on pages; empty: none
  // Returns the parts of a task.
  std::vector<Part> (*parts)(const TaskView& view, Form form) = nullptr;
  // Returns the parts that no task has of its own, which a page shows after the tasks.
  std::vector<Part> (*shared_parts)(const Results& results) = nullptr;
  std::vector<CsvColumn> csv = {};
  Request request = Request::kNone;
};

// Leading score of a task's metric: name (empty if nothing is scored), shown digits and size of a point.
struct ScoreStyle {
  std::string name = {};
  int digits = 2;
  double point = 1;
  bool lower_is_better = false;

  // Returns how much worse `to` is than `from`; negative: better.
  double loss(double from, double to) const { return lower_is_better ? to - from : from - to; }
};
// Returns the line on a plot that is one point worse than `quality`.
PlotLevel one_point_worse(double quality, const ScoreStyle& style);
// Returns the leading score of the task's metric.
ScoreStyle score_style(const TaskResult& task);
// Returns a score's name as papers write it: "BLEU", "chrF", "ROUGE-L".
std::string score_words(const std::string& score);

// Return a number with that many digits behind the point; empty for an unknown or absent number.
std::string fixed(double value, int digits);
std::string fixed(const std::optional<double>& value, int digits);

}  // namespace draftsmith::evaluate
