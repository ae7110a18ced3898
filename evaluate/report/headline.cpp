#include "evaluate/report/headline.h"

#include <cmath>

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

// Share of the processors above which others disturb times.
constexpr double kDisturbing = 0.1;

// Returns whether the setting drafts for, or leaves out work of, the baseline's model.
bool drafts(const SettingResult& setting) {
  return setting.method != "greedy" && setting.method != "sample" && !setting.measurement_error &&
         std::isfinite(setting.speed.speedup.value);
}

bool has_greedy_output(const SettingResult& setting) {
  return setting.exactness && setting.exactness->lossless && setting.lossless_check.value_or(false);
}

std::string speed_of(const SettingResult& setting) {
  const Ratio& speedup = setting.speed.speedup;
  const double half = (speedup.interval.high - speedup.interval.low) / 2;
  return std::isfinite(half) ? fmt::format("{:.2f} ±{:.2f}", speedup.value, half)
                             : fmt::format("{:.2f}", speedup.value);
}

std::string cost_of(const SettingResult& setting, const ScoreStyle& score) {
  if (has_greedy_output(setting)) return "with the same output";
  if (!setting.quality.difference || score.name.empty()) return "";
  return fmt::format("{:+.{}f} {}", setting.quality.difference->value, score.digits, score.name);
}

}  // namespace

std::string headline_note(const TaskResult& task) {
  const SettingResult* fastest = nullptr;
  const SettingResult* same = nullptr;
  const auto is_faster = [](const SettingResult& setting, const SettingResult* than) {
    return than == nullptr || setting.speed.speedup.value > than->speed.speedup.value;
  };
  for (const SettingResult& setting : task.settings) {
    if (!drafts(setting)) continue;
    if (is_faster(setting, fastest)) fastest = &setting;
    if (has_greedy_output(setting) && is_faster(setting, same)) same = &setting;
  }
  if (fastest == nullptr) return "";
  const std::string cost = cost_of(*fastest, score_style(task));
  std::string text = fmt::format("  In words: the fastest is {}, {} times the baseline's speed{}", fastest->name,
                                 speed_of(*fastest), cost.empty() ? "" : ", " + cost);
  if (same != nullptr && same != fastest) {
    text += fmt::format("; of those with the same output, {}, {} times", same->name, speed_of(*same));
  }
  return text;
}

std::string busy_note(const Results& results) {
  const auto load = results.environment.find("other_load");
  if (load == results.environment.end() || !load->is_number() || load->get<double>() < kDisturbing) return "";
  return fmt::format(
      "! Other processes used {:.0f} % of the processors meanwhile: these are speeds of a busy machine, and low ones",
      100 * load->get<double>());
}

}  // namespace draftsmith::evaluate
