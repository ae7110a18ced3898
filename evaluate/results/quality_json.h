// Keys of scores in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/quality.h"

namespace draftsmith::evaluate {

inline constexpr const char* kInterval = "_ci95";

// Writes and reads scores under their own names.
inline void visit(JsonWriter& io, const Quality& quality) {
  for (const auto& score : quality.scores) io.estimate(score.name, score.value, score.interval);
  if (!quality.difference) return;
  io.estimate("difference", quality.difference->value, quality.difference->interval);
  io("p_value", quality.difference->p_value);
}
inline void visit(JsonReader& io, Quality& quality) {
  for (const auto& [key, value] : io.json.items()) {
    if (key.ends_with(kInterval) || key == "difference" || key == "p_value") continue;
    auto& score = quality.scores.emplace_back();
    score.name = key;
    io.estimate(key, score.value, score.interval);
  }
  if (!io.json.contains("difference")) return;
  auto& difference = quality.difference.emplace();
  io.estimate("difference", difference.value, difference.interval);
  io("p_value", difference.p_value);
}

}  // namespace draftsmith::evaluate
