#include "evaluate/report/headline.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/section.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

double speedup_of(const SettingResult* setting) {
  return setting == nullptr ? 1 : setting->speed.speedup.value;
}

// Returns whether drafts end by knowing the target's output: a bound, which nobody can decode with.
bool is_bound(const SettingResult& setting) {
  const auto rule = setting.params.find("window_rule");
  return rule != setting.params.end() && *rule == "oracle";
}

bool counts(const SettingResult& setting, const TaskResult& task) {
  const double speedup = setting.speed.speedup.value;
  return setting.baseline == task.baseline.name && setting.name != task.baseline.name && !setting.repeats &&
         !is_bound(setting) && !setting.measurement_error && !setting.failed_lines && std::isfinite(speedup) &&
         speedup > 0;
}

bool is_lossless(const SettingResult& setting) {
  return setting.lossless_check.value_or(false);
}

bool has_difference(const SettingResult& setting) {
  return setting.quality.difference && std::isfinite(setting.quality.difference->value);
}

// Returns how much of the score a setting with a difference loses.
double loss_of(const SettingResult& setting, const ScoreStyle& style) {
  return style.loss(0, setting.quality.difference->value);
}

bool is_near(const SettingResult& setting, const ScoreStyle& style) {
  return loss_of(setting, style) <= style.point;
}

// Returns whether the interval says that the setting is faster than its baseline.
bool is_faster(const SettingResult& setting) {
  const Ratio& speedup = setting.speed.speedup;
  return std::isfinite(speedup.interval.low) ? speedup.interval.low > 1 : speedup.value > 1;
}

std::string times(const SettingResult& setting) {
  return fmt::format("{:.2f} ×", setting.speed.speedup.value);
}

using Names = std::map<std::string, std::string>;

std::string lossless_words(const Best& best, const std::string& score, const Names& names) {
  if (best.lossless == nullptr) return "";
  const std::string same = score.empty() ? "with the same output" : "at the same " + score;
  if (!is_faster(*best.lossless)) {
    return fmt::format("No lossless method is measurably faster (the best: {}, {})", times(*best.lossless),
                       names.at(best.lossless->name));
  }
  return fmt::format("Lossless methods are up to {} as fast {} ({})", times(*best.lossless), same,
                     names.at(best.lossless->name));
}

std::string near_words(const Best& best, const std::string& score, const ScoreStyle& style, const Names& names) {
  const std::string size = style.point == 1 ? "one point" : fmt::format("{:g}", style.point);
  const std::string within = fmt::format("within {} of {}", size, score);
  if (best.near != nullptr) {
    return fmt::format("the best {} is {} as fast ({}, {:+.{}f})", within, times(*best.near), names.at(best.near->name),
                       best.near->quality.difference->value, style.digits);
  }
  if (best.next != nullptr) {
    return fmt::format("the nearest that is faster, {}, {} {:.{}f} of {} ({})", times(*best.next),
                       style.lower_is_better ? "adds" : "loses", loss_of(*best.next, style), style.digits, score,
                       names.at(best.next->name));
  }
  return best.lossy ? fmt::format("nothing {} is faster", within) : "";
}

}  // namespace

Best best_settings(const TaskResult& task) {
  const ScoreStyle style = score_style(task);
  Best best;
  for (const SettingResult& setting : task.settings) {
    if (counts(setting, task) && is_lossless(setting) &&
        (best.lossless == nullptr || speedup_of(&setting) > speedup_of(best.lossless))) {
      best.lossless = &setting;
    }
  }
  for (const SettingResult& setting : task.settings) {
    if (!counts(setting, task) || is_lossless(setting) || !has_difference(setting)) continue;
    best.lossy = true;
    if (!is_faster(setting) || speedup_of(&setting) <= speedup_of(best.lossless)) continue;
    if (best.next == nullptr || loss_of(setting, style) < loss_of(*best.next, style)) best.next = &setting;
    if (is_near(setting, style) && speedup_of(&setting) > speedup_of(best.near)) best.near = &setting;
  }
  if (best.near != nullptr) best.next = nullptr;
  return best;
}

std::string headline(const TaskResult& task) {
  const Best best = best_settings(task);
  const ScoreStyle style = score_style(task);
  const std::string score = score_words(style.name);
  const Names names = short_names(task);
  const std::string lossless = lossless_words(best, score, names);
  std::string near = near_words(best, score, style, names);
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

}  // namespace draftsmith::evaluate
