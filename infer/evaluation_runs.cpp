#include "infer/evaluation_runs.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace draftsmith::infer {
namespace {

nlohmann::ordered_json number(double value) {
  if (std::isinf(value)) return "inf";
  return value;
}

std::string file_safe(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
        return !plain;
      },
      '_');
  return text;
}

std::string label_of(const EvaluationRun& run, const RunSettings& settings, bool grid) {
  std::string label = run.name.empty() ? settings.method : run.name;
  if (!run.name.empty() && !grid) return file_safe(label);
  if (settings.model != "target") label += "." + settings.model;
  if (!settings.drafter.empty()) label += "." + settings.drafter;
  for (const auto& [key, value] : settings.params().items()) {
    const bool plain_sampling = key == "temperature" && settings.method == "sample" && settings.temperature == 1;
    if (key == "drafter" || key == "model" || plain_sampling) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    label += fmt::format(".{}{}", key, text.ends_with(".0") ? text.substr(0, text.size() - 2) : text);
  }
  return file_safe(label);
}

// Calls `next` for each value of the list with the value set, or once when the list is empty.
template <typename Value, typename Member>
std::vector<RunSettings> spread(std::vector<RunSettings> points, const std::vector<Value>& values,
                                Member RunSettings::*member) {
  if (values.empty()) return points;
  std::vector<RunSettings> result;
  for (const auto& point : points) {
    for (const auto& value : values) result.emplace_back(point).*member = value;
  }
  return result;
}

std::vector<RunSettings> expand(const EvaluationRun& run) {
  RunSettings start;
  start.method = run.method;
  start.model = run.model;
  start.choose_on = run.choose_on;
  start.max_drop = run.max_drop;
  if (run.method == "sample" || run.method == "speculative") start.temperature = run.method == "sample" ? 1 : 0;
  std::vector<RunSettings> points{start};
  points = spread(points, run.drafter, &RunSettings::drafter);
  points = spread(points, run.temperature, &RunSettings::temperature);
  points = spread(points, run.top_k, &RunSettings::top_k);
  points = spread(points, run.top_p, &RunSettings::top_p);
  points = spread(points, run.window, &RunSettings::window);
  points = spread(points, run.fallback, &RunSettings::fallback);
  points = spread(points, run.rollback, &RunSettings::rollback);
  points = spread(points, run.max_draft, &RunSettings::max_draft);
  for (auto& point : points) point.label = label_of(run, point, points.size() > 1);
  return points;
}

bool contains(const std::vector<RunSettings>& runs, const std::string& label) {
  return std::any_of(runs.begin(), runs.end(), [&](const auto& run) { return run.label == label; });
}

}  // namespace

nlohmann::ordered_json RunSettings::params() const {
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  if (model != "target") result["model"] = model;
  if (!drafter.empty()) result["drafter"] = drafter;
  if (window) result["window"] = *window;
  if (temperature != 0) result["temperature"] = temperature;
  if (top_k != 0) result["top_k"] = top_k;
  if (top_p != 1) result["top_p"] = top_p;
  if (fallback) result["fallback"] = number(*fallback);
  if (rollback) result["rollback"] = number(*rollback);
  if (max_draft) result["max_draft"] = *max_draft;
  return result;
}

RunSettings greedy_baseline() {
  RunSettings run;
  run.label = "greedy";
  run.method = "greedy";
  return run;
}

RunSettings baseline_of(const RunSettings& run) {
  if (run.temperature == 0) return greedy_baseline();
  RunSettings baseline;
  baseline.method = "sample";
  baseline.temperature = run.temperature;
  baseline.top_k = run.top_k;
  baseline.top_p = run.top_p;
  baseline.label = label_of({}, baseline, true);
  return baseline;
}

std::vector<RunSettings> expand_runs(const EvaluationOptions& options) {
  std::vector<RunSettings> runs{greedy_baseline()};
  for (const EvaluationRun& given : options.run) {
    for (RunSettings& run : expand(given)) {
      const RunSettings baseline = baseline_of(run);
      if (!contains(runs, baseline.label)) runs.push_back(baseline);
      const bool is_baseline = run.label == baseline.label && run.params() == baseline.params();
      if (is_baseline) continue;
      if (contains(runs, run.label)) {
        throw UserError({.where = "run",
                         .what = "two runs of the suite have the same name",
                         .expected = "different names or parameters",
                         .found = run.label,
                         .hint = "give one of them another 'name'"});
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace draftsmith::infer
