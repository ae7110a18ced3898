#include "evaluate/results/chosen_rows.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "evaluate/results/group_choice.h"

namespace draftsmith::evaluate {
namespace {

const MeasuredTask& task_named(const std::vector<MeasuredTask>& tasks, const std::string& name) {
  return *std::ranges::find_if(tasks, [&](const MeasuredTask& task) { return task.task->name == name; });
}

}  // namespace

void add_chosen_rows(const std::vector<Setting>& settings, const std::vector<MeasuredTask>& measured,
                     MeasuredTask& task) {
  std::vector<std::string> groups;
  for (const auto& setting : settings) {
    if (setting.choose_on.empty() || std::find(groups.begin(), groups.end(), setting.group) != groups.end()) continue;
    groups.push_back(setting.group);
    for (const double max_drop : setting.max_drop) {
      const auto choice = choose_in_group(task_named(measured, setting.choose_on), setting, max_drop);
      if (!choice) {
        task.failures.push_back({chosen_label(setting.group, max_drop), "choosing",
                                 fmt::format("no setting of {} was measured on {}", setting.group, setting.choose_on)});
        continue;
      }
      const auto chosen = std::find_if(settings.begin(), settings.end(),
                                       [&](const auto& other) { return other.label == choice->label; });
      task.rows.push_back({chosen_label(setting.group, max_drop), *chosen, *choice});
    }
  }
}

}  // namespace draftsmith::evaluate
