// Table of speedups by category, for data sets whose categories are tasks of their own (Spec-Bench, SPEED-Bench).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kMostColumns = 6;  // settings beside each other on the console

// Returns the data set of a category's task: "spec_bench" of "spec_bench.qa"; empty for other tasks.
std::string set_of(const TaskResult& task) {
  const size_t dot = task.name.rfind('.');
  return dot == std::string::npos ? "" : task.name.substr(0, dot);
}

// Returns the tasks of a data set, in their order.
std::vector<const TaskResult*> tasks_of(const Results& results, const std::string& set) {
  std::vector<const TaskResult*> tasks;
  for (const TaskResult& task : results.tasks) {
    if (!task.chooses && set_of(task) == set) tasks.push_back(&task);
  }
  return tasks;
}

double speedup_of(const TaskResult& task, const std::string& setting) {
  const SettingResult* found = task.find(setting);
  return found == nullptr ? std::nan("") : found->speed.speedup.value;
}

// Returns the geometric mean, which for ratios is the mean that does not depend on the baseline.
double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

Table speedup_table(const std::vector<const TaskResult*>& tasks, const std::vector<std::string>& settings) {
  std::vector<Column> headers{{"category", Align::kLeft}, {"lines"}};
  for (const std::string& setting : settings) headers.push_back({setting, Align::kRight, "speedup of " + setting});
  Table table(std::move(headers));
  std::vector<std::vector<double>> speedups(settings.size());
  int64_t lines = 0;
  for (const TaskResult* task : tasks) {
    lines += task->lines;
    std::vector<std::string> cells{task->name.substr(task->name.rfind('.') + 1), std::to_string(task->lines)};
    for (size_t i = 0; i < settings.size(); ++i) {
      speedups[i].push_back(speedup_of(*task, settings[i]));
      cells.push_back(fixed(speedups[i].back(), 2));
    }
    table.add_row(std::move(cells));
  }
  table.add_rule();
  std::vector<std::string> mean{"all (geometric mean)", std::to_string(lines)};
  for (const auto& column : speedups) mean.push_back(fixed(geometric_mean(column), 2));
  table.add_row(std::move(mean));
  return table;
}

// Returns the table below the data set's last task.
std::vector<Part> category_parts(const TaskView& view, Form form) {
  const std::string set = set_of(view.task);
  if (set.empty() || view.task.chooses) return {};
  const std::vector<const TaskResult*> tasks = tasks_of(view.results, set);
  if (tasks.size() < 2 || tasks.back() != &view.task) return {};
  std::vector<std::string> settings;
  for (const SettingResult& setting : view.task.settings) settings.push_back(setting.name);
  const size_t all = settings.size();
  if (form == Form::kBrief && all > kMostColumns) settings.resize(kMostColumns);
  if (settings.empty()) return {};
  Part part{.caption = fmt::format("{} by category: tokens a second over those of the baseline", set),
            .table = speedup_table(tasks, settings)};
  if (settings.size() < all) {
    part.notes.push_back(fmt::format("  {} more settings are in report.html and results.csv", all - settings.size()));
  }
  return {part};
}

}  // namespace

Section categories_section() {
  return {.title = "Speed by category", .parts = category_parts};
}

}  // namespace draftsmith::evaluate
