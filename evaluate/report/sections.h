// Sections of a suite's report, and what they share. A section gives tables, notes and plots of a task. Console, HTML
// page and Markdown show the sections in the order of sections().
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/plots.h"
#include "base/table.h"
#include "evaluate/results/results.h"
#include "metrics/metric.h"

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

// Table with caption, notes and figures, or one of these alone.
struct Part {
  std::string caption = {};  // above the table; newlines separate lines
  Table table = Table();
  std::vector<std::string> notes = {};  // below the table; those on errors begin with "!"
  std::vector<Figure> figures = {};
};

// Part of a report that shows one aspect of a task.
struct Section {
  std::string title;  // heading on pages
  // Returns the parts of a task. An empty list leaves the section out.
  std::vector<Part> (*parts)(const TaskView& view, Form form);
  bool console = true;  // false: shown on pages alone
};

// Returns all sections in their order. A new one is a function below and a line in sections.cpp.
const std::vector<Section>& sections();

// speed.cpp
std::vector<Part> quality_speed_parts(const TaskView& view, Form form);  // all settings as points
std::vector<Part> category_parts(const TaskView& view, Form form);       // speedups by category of a data set
// Returns the tasks that are the categories of one data set, the view's among them. Empty for a task that is none.
std::vector<const TaskResult*> categories_of(const TaskView& view);
// Returns whether means say what categories have in common: they are timed, and not scored.
bool are_summed_up(const std::vector<const TaskResult*>& categories);
// Returns the means over categories as a task, in which each counts the same: geometric ones of speedups and tokens a
// run, arithmetic ones of rates. A setting that a category lacks has no mean.
TaskResult mean_task(const std::vector<const TaskResult*>& categories);
// Returns the speedups of that task's leading settings by category.
std::string category_markdown(const TaskResult& mean, const std::vector<const TaskResult*>& categories);
std::vector<Part> time_parts(const TaskView& view, Form form);  // throughput, percentiles of times, phases
// sections.cpp
std::vector<Part> setting_parts(const TaskView& view, Form form);  // quality, speed and acceptance
// Returns at most 12 rows of that table: the baseline, and the fastest setting that loses little for each drafter of
// lossless settings and each method of others.
std::vector<const SettingResult*> leading_settings(const TaskResult& task);
std::string leading_markdown(const TaskResult& task);  // the table of these rows, and bars of their speedups
// theory.cpp
std::vector<Part> theory_parts(const TaskView& view, Form form);  // predicted speed, best windows (SpecGame)
// drafters.cpp
std::vector<Part> drafter_parts(const TaskView& view, Form form);   // how well drafters predict texts
std::vector<Part> position_parts(const TaskView& view, Form form);  // acceptance by place in the draft
// self_drafting.cpp
std::vector<Part> layer_parts(const TaskView& view, Form form);       // layers that ran, where tokens left
std::vector<Part> match_rate_parts(const TaskView& view, Form form);  // PPD's tables 2 and 5 to 8
// bild_figures.cpp
std::vector<Part> work_parts(const TaskView& view, Form form);        // operations and bytes, figure 8
std::vector<Part> engagement_parts(const TaskView& view, Form form);  // figure 2

// Returns a metric that scores as the task was, for reading its results. Other options have their defaults.
std::unique_ptr<const metrics::Metric> metric_of(const TaskResult& task);
// Returns a score's name as papers write it: "BLEU", "chrF", "ROUGE-L".
std::string score_words(const std::string& score);

// Return a number with that many digits behind the point; empty for an unknown or absent number.
std::string fixed(double value, int digits);
std::string fixed(const std::optional<double>& value, int digits);
// Returns a number with its interval, if that is known: "1.93 ±0.02", on pages "1.93 [1.91, 1.95]".
std::string with_interval(const Ratio& ratio, int digits, Form form);

// Settings that a plot has room for.
struct ShownSettings {
  std::vector<const SettingResult*> settings;  // in the order of the task
  std::string left_out;                        // for a caption: " Shown: the 24 fastest of 500."; empty: none is
};
// Returns the settings that `shown` holds for, the baseline included, at most `limit` and then the fastest.
ShownSettings fastest_settings(const TaskResult& task, size_t limit, bool (*shown)(const SettingResult& setting));

// Returns whether a setting was compared with another one: it has no failed lines, no repeated ones and no oracle.
bool is_compared(const SettingResult& setting);
// Returns whether headlines speak of a setting: it was compared with the task's own baseline.
bool counts(const SettingResult& setting, const TaskResult& task);
// Returns whether a setting writes what the target writes alone. One that decodes a model of its own keeps that one's.
bool keeps_outputs(const SettingResult& setting);
// Returns whether a setting keeps the target's outputs, or loses at most one point.
bool loses_little(const SettingResult& setting, const metrics::Metric& score);
// Returns the sentence: "Lossless methods are up to 2.41 ±0.05 × as fast at the same BLEU (...); the best within one
// point of BLEU is 2.93 ±0.05 × as fast (...)." Empty if no setting counts.
std::string headline(const TaskResult& task);
// Returns the headlines of the tasks on which nothing is chosen, with their names if there are several.
std::vector<std::string> headlines(const Results& results);

// Returns the tasks in the order of pages: tasks on which settings were chosen follow the others.
std::vector<const TaskResult*> page_order(const Results& results);
// Returns a task's heading. That of a task on which settings were chosen says so.
std::string task_heading(const TaskResult& task);
// Sentence below the heading of a task on which settings were chosen.
inline constexpr const char* kChoosingPurpose =
    "The numbers below chose the settings that other tasks report. They flatter the chosen settings: the other tasks "
    "say what these settings are worth.";

}  // namespace draftsmith::evaluate
