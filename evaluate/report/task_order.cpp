#include "evaluate/report/task_order.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::evaluate {
namespace {

// Returns the names of the rows that other tasks have because they were chosen on `task`, each once.
std::vector<std::string> chosen_rows(const Results& results, const TaskResult& task) {
  std::vector<std::string> names;
  for (const TaskResult& other : results.tasks) {
    for (const SettingResult& setting : other.settings) {
      if (!setting.chosen || setting.chosen->on != task.name) continue;
      if (std::ranges::find(names, setting.name) == names.end()) names.push_back(setting.name);
    }
  }
  return names;
}

}  // namespace

std::vector<const TaskResult*> page_order(const Results& results) {
  std::vector<const TaskResult*> tasks;
  for (const TaskResult& task : results.tasks) tasks.push_back(&task);
  std::ranges::stable_partition(tasks, [](const TaskResult* task) { return !task->chooses; });
  return tasks;
}

std::string task_heading(const TaskResult& task) {
  return task.chooses ? task.name + ", where settings were chosen" : task.name;
}

std::string task_purpose(const Results& results, const TaskResult& task) {
  if (!task.chooses) return "";
  const std::vector<std::string> rows = chosen_rows(results, task);
  if (rows.empty()) return "Settings are chosen by their numbers on this task.";
  return fmt::format(
      "The numbers below chose the settings that other tasks report as {}. They flatter the chosen settings: the other "
      "tasks say what these settings are worth.",
      fmt::join(rows, ", "));
}

}  // namespace draftsmith::evaluate
