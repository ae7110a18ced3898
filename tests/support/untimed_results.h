// Results of an evaluation without what is timed: what several processes must give to the byte as one does.
#pragma once

#include <set>
#include <string>

#include <nlohmann/json.hpp>

namespace draftsmith {

inline nlohmann::ordered_json without_times(const nlohmann::ordered_json& json) {
  static const std::set<std::string> kTimed{
      "tokens_per_second", "ms_per_token",        "decode_ms_per_token", "seconds",     "predicted",     "accounted",
      "measurement_error", "cost_ratio",          "target_step_seconds", "timed_again", "speedup_there", "latency",
      "versus_beams",      "sentences_per_second"};
  nlohmann::ordered_json kept = json;
  if (json.is_array()) {
    for (auto& one : kept) one = without_times(one);
  }
  if (!json.is_object()) return kept;
  kept.clear();
  for (const auto& [key, value] : json.items()) {
    if (!kTimed.contains(key) && !key.starts_with("speedup")) kept[key] = without_times(value);
  }
  return kept;
}

// Returns the untimed results of all tasks, match rates and engagement curves of a results.json.
inline nlohmann::ordered_json untimed_results(const nlohmann::ordered_json& results) {
  return {{"tasks", without_times(results.at("tasks"))},
          {"match_rates", results.value("match_rates", nlohmann::ordered_json())},
          {"engagement", results.value("engagement", nlohmann::ordered_json())}};
}

}  // namespace draftsmith
