#include "evaluate/report/sections.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "metrics/scoring.h"

namespace draftsmith::evaluate {

const std::vector<Section>& sections() {
  static const std::vector<Section> kAll{
      {"Quality and speed", quality_speed_parts},
      {"All settings", setting_parts},
      {"Speed by category", category_parts},
      {"Predicted and measured speed", theory_parts},
      {"How well each drafter predicts", drafter_parts},
      {"Acceptance by position", position_parts},
      {"Throughput and latency", time_parts, /*console=*/false},
      {"Operations and bytes", work_parts},
      {"Inside the model", layer_parts},
      {"Match rates of early predictions", match_rate_parts},
      {"How often the large model must decide", engagement_parts},
      {"Example outputs", example_parts},
  };
  return kAll;
}

std::unique_ptr<const metrics::Metric> metric_of(const TaskResult& task) {
  metrics::MetricOptions options;
  options.name = task.metric;
  if (task.command) static_cast<metrics::CommandOptions&>(options) = *task.command;
  return metrics::make_metric(options);
}

std::string score_words(const std::string& score) {
  if (score == "bleu") return "BLEU";
  if (score.starts_with("chrf")) return "chrF" + score.substr(4);
  return score.starts_with("rouge") ? "ROUGE-" + score.substr(5) : score;
}

std::string fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "";
}

ShownSettings fastest_settings(const TaskResult& task, size_t limit, bool (*shown)(const SettingResult& setting)) {
  std::vector<const SettingResult*> settings = task.rows();
  std::erase_if(settings, [&](const SettingResult* setting) { return !shown(*setting); });
  if (settings.size() <= limit) return {settings, ""};
  const std::string left_out = fmt::format(" Shown: the {} fastest of {}.", limit, settings.size());
  const auto speed = [](const SettingResult* setting) {
    return std::isfinite(setting->speed.speedup.value) ? setting->speed.speedup.value : 0;
  };
  std::vector<const SettingResult*> fastest = settings;
  std::ranges::stable_sort(fastest, [&](auto* a, auto* b) { return speed(a) > speed(b); });
  fastest.resize(limit);
  std::erase_if(settings, [&](auto* setting) { return std::ranges::find(fastest, setting) == fastest.end(); });
  return {settings, left_out};
}

}  // namespace draftsmith::evaluate
