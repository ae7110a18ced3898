// Headlines of a report, and the order and headings of its tasks.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Settings that the headline of a task names; nullptr: there is none.
struct Best {
  const SettingResult* lossless = nullptr;  // the fastest whose checks of losslessness passed
  const SettingResult* near = nullptr;      // the fastest that loses at most one point, and is faster than `lossless`
  bool lossy = false;                       // there are settings that may lose quality
};

double speedup_of(const SettingResult* setting) {
  return setting == nullptr ? 1 : setting->speed.speedup.value;
}

bool counts(const SettingResult& setting, const TaskResult& task) {
  const auto rule = setting.params.find("window_rule");
  if (rule != setting.params.end() && *rule == "oracle") return false;  // knows the output: nobody can decode with it
  const double speedup = setting.speed.speedup.value;
  return setting.baseline == task.baseline.name && setting.name != task.baseline.name && !setting.repeats &&
         !setting.failed_lines && std::isfinite(speedup) && speedup > 0;
}

// Returns whether the interval says that the setting is faster than its baseline.
bool is_faster(const SettingResult& setting) {
  const Ratio& speedup = setting.speed.speedup;
  return std::isfinite(speedup.interval.low) ? speedup.interval.low > 1 : speedup.value > 1;
}

std::string times(const SettingResult& setting) {
  return fmt::format("{:.2f} ×", setting.speed.speedup.value);
}

std::string lossless_words(const Best& best, const std::string& score) {
  if (best.lossless == nullptr) return "";
  const std::string same = score.empty() ? "with the same output" : "at the same " + score;
  if (!is_faster(*best.lossless)) {
    return fmt::format("No lossless method is measurably faster (the best: {}, {})", times(*best.lossless),
                       best.lossless->name);
  }
  return fmt::format("Lossless methods are up to {} as fast {} ({})", times(*best.lossless), same, best.lossless->name);
}

std::string near_words(const Best& best, const std::string& score, const metrics::Metric& style) {
  const std::string size = style.point() == 1 ? "one point" : fmt::format("{:g}", style.point());
  const std::string within = fmt::format("within {} of {}", size, score);
  if (best.near != nullptr) {
    return fmt::format("the best {} is {} as fast ({}, {:+.{}f})", within, times(*best.near), best.near->name,
                       best.near->quality.difference->value, style.digits());
  }
  return best.lossy ? fmt::format("nothing {} is faster", within) : "";
}

Best best_settings(const TaskResult& task, const metrics::Metric& style) {
  Best best;
  for (const SettingResult& setting : task.settings) {
    const bool faster = best.lossless == nullptr || speedup_of(&setting) > speedup_of(best.lossless);
    if (counts(setting, task) && setting.lossless_check.value_or(false) && faster) best.lossless = &setting;
  }
  for (const SettingResult& setting : task.settings) {
    const auto& difference = setting.quality.difference;
    if (!counts(setting, task) || setting.lossless_check.value_or(false)) continue;
    if (!difference || !std::isfinite(difference->value)) continue;
    best.lossy = true;
    if (!is_faster(setting) || speedup_of(&setting) <= speedup_of(best.lossless)) continue;
    const bool near = style.loss(0, difference->value) <= style.point();
    if (near && speedup_of(&setting) > speedup_of(best.near)) best.near = &setting;
  }
  return best;
}

}  // namespace

std::string headline(const TaskResult& task) {
  const auto metric = metric_of(task);
  const Best best = best_settings(task, *metric);
  const std::string score = score_words(metric->leading_score());
  const std::string lossless = lossless_words(best, score);
  std::string near = near_words(best, score, *metric);
  if (lossless.empty() && near.empty()) return "";
  if (lossless.empty()) near.front() = near.starts_with("the ") ? 'T' : 'N';
  return lossless + (lossless.empty() || near.empty() ? "" : "; ") + near + ".";
}

std::vector<std::string> headlines(const Results& results) {
  const auto reported = std::ranges::count_if(results.tasks, [](const TaskResult& task) { return !task.chooses; });
  std::vector<std::string> lines;
  for (const TaskResult& task : results.tasks) {
    std::string line = task.chooses ? "" : headline(task);
    if (line.empty()) continue;
    lines.push_back(reported > 1 ? task.name + ": " + line : std::move(line));
  }
  return lines;
}

std::vector<const TaskResult*> page_order(const Results& results) {
  std::vector<const TaskResult*> tasks;
  for (const TaskResult& task : results.tasks) tasks.push_back(&task);
  std::ranges::stable_partition(tasks, [](const TaskResult* task) { return !task->chooses; });
  return tasks;
}

std::string task_heading(const TaskResult& task) {
  return task.chooses ? task.name + ", where settings were chosen" : task.name;
}

}  // namespace draftsmith::evaluate
