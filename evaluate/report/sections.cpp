#include "evaluate/report/sections.h"

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {

const std::vector<Section>& sections() {
  static const std::vector<Section> kAll{
      settings_section(),    windows_section(),         prediction_quality_section(), phases_section(),
      inside_section(),      quality_latency_section(), quality_speedup_section(),    accepted_lengths_section(),
      match_rates_section(), checks_section()};
  return kAll;
}

ScoreStyle score_style(const TaskResult& task) {
  const auto metric = metrics::make_metric(task.metric);
  return {.name = metric->leading_score(), .digits = metric->digits(), .point = metric->point()};
}

nlohmann::ordered_json csv_number(const std::optional<double>& value) {
  return value ? finite_or_null(*value) : nlohmann::ordered_json();
}

std::string fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "";
}

}  // namespace draftsmith::evaluate
