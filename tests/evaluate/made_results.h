// Results of made-up settings and records of made-up lines.
#pragma once

#include <string>
#include <vector>

#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns a setting with a BLEU and a speedup, whose interval reaches 0.05 to both sides. A drafter of that name
// drafts.
inline SettingResult made_setting(const std::string& name, const std::string& method, double speedup, double bleu,
                                  const std::string& drafter = "") {
  SettingResult setting{.name = name, .method = method, .baseline = "greedy"};
  if (!drafter.empty()) setting.params["drafter"] = drafter;
  setting.quality.scores = {{.name = "bleu", .value = bleu, .interval = {bleu - 1, bleu + 1}}};
  setting.quality.difference =
      QualityDifference{.value = bleu - 30, .interval = {bleu - 30.5, bleu - 29.5}, .p_value = 0.5};
  setting.speed.speedup = {.value = speedup, .interval = {speedup - 0.05, speedup + 0.05}};
  return setting;
}

inline SettingResult made_lossless(const std::string& name, const std::string& method, double speedup,
                                   const std::string& drafter = "small") {
  SettingResult setting = made_setting(name, method, speedup, 30, drafter);
  setting.lossless_check = true;
  return setting;
}

// Returns a task whose greedy baseline has a BLEU of 30.
inline TaskResult made_task(std::vector<SettingResult> settings) {
  TaskResult task{.name = "captions", .baseline = made_setting("greedy", "greedy", 1, 30)};
  task.baseline.quality.difference.reset();
  task.settings = std::move(settings);
  return task;
}

// Returns a record of a line with so many tokens, whose encoder takes a second in each repetition.
inline LineRecord timed(int64_t tokens, const std::vector<double>& verify, int64_t target_runs) {
  LineRecord record;
  record.ids.assign(static_cast<size_t>(tokens), 7);
  record.stats.emitted = tokens;
  record.stats.target_runs = target_runs;
  for (const double seconds : verify) record.repetitions.push_back({.encode = 1, .verify = seconds});
  return record;
}

}  // namespace draftsmith::evaluate
