#include "evaluate/results/results.h"

#include <algorithm>
#include <string_view>

#include "evaluate/suite/names.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Returns the value of a key; null if `object` is no object or lacks it.
const ordered_json& value_of(const ordered_json& object, std::string_view key) {
  static const ordered_json kNull;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNull : *found;
}

std::string text_of(const ordered_json& value, const std::string& otherwise) {
  return value.is_string() ? value.get<std::string>() : otherwise;
}

}  // namespace

const metrics::NamedScore* Quality::find(const std::string& score) const {
  const auto found = std::find_if(scores.begin(), scores.end(), [&](const auto& one) { return one.name == score; });
  return found == scores.end() ? nullptr : &*found;
}

std::string SettingResult::model() const {
  return text_of(value_of(params, "model"), kTargetName);
}

std::string SettingResult::drafter_name() const {
  return text_of(value_of(params, "drafter"), "");
}

std::optional<int64_t> SettingResult::window() const {
  const ordered_json& value = value_of(params, "window");
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

bool SettingResult::falls_back() const {
  return method == "bild" || params.contains("rollback");
}

const char* head_name(bool trained) {
  return trained ? "trained" : "own";
}

std::optional<std::string> Results::environment_text(const std::string& key) const {
  const ordered_json& value = value_of(environment, key);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

std::optional<int64_t> Results::environment_number(const std::string& key) const {
  const ordered_json& value = value_of(environment, key);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<double> Results::parameters_of(const std::string& model) const {
  const ordered_json& value = value_of(value_of(environment, "parameters"), model);
  return value.is_number() && value.get<double>() > 0 ? std::optional(value.get<double>()) : std::nullopt;
}

metrics::MetricOptions TaskResult::metric_options() const {
  metrics::MetricOptions options;
  options.name = metric;
  if (command) static_cast<metrics::CommandOptions&>(options) = *command;
  return options;
}

const SettingResult* TaskResult::find(const std::string& setting) const {
  for (const SettingResult* row : rows()) {
    if (row->name == setting) return row;
  }
  return nullptr;
}

std::vector<const SettingResult*> TaskResult::rows() const {
  std::vector<const SettingResult*> rows{&baseline};
  for (const SettingResult& setting : settings) rows.push_back(&setting);
  return rows;
}

}  // namespace draftsmith::evaluate
