// Measurements of one task of a suite.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/counting_pass.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {

// Row of a task's results: a setting, or a setting chosen on another task, under a name of its own.
struct SettingRow {
  std::string label;
  Setting settings;  // settings.label names its records
  std::optional<ChosenSetting> choice;
};

// Task with everything measured on it.
struct MeasuredTask {
  const TaskOptions* task = nullptr;
  std::string key;       // name of the task with a hash of its options and data, which names measurements
  bool chooses = false;  // settings are chosen on this task (validation data)
  TaskData data;
  std::vector<Prompt> prompts;
  int64_t cut_sources = 0;
  int64_t max_new_tokens = 0;
  ForcedTexts forced_texts;      // texts of the first forced_lines lines
  std::vector<SettingRow> rows;  // the greedy baseline first
  TaskRecords records;
  std::vector<SettingFailure> failures;  // settings that are not in `rows` for a failure, and parts that are missing
  std::map<std::string, std::vector<std::string>>
      hypotheses;  // by records' label, in the form that is scored and written
  std::map<std::string, metrics::LineStatistics> statistics;  // by records' label
  std::map<std::string, std::string> drafted_for;             // model that decodes, by Setting::drafter_label()
  std::map<std::string, infer::StepCosts> costs;              // by Setting::drafter_label(), like the next three
  std::map<std::string, ForcedAlphas> forced;                 // on greedy outputs of the model that decodes
  std::map<std::string, ForcedAlphas> forced_sampled;         // on outputs that it sampled at temperature 1
  std::map<std::string, ForcedAlphas> predicted;              // on forced_texts

  // Returns the greedy decoding of the setting's own model. The setting is one of the target, or
  // compares_with_own_greedy() holds.
  const SettingRecords& own_greedy(const Setting& setting) const { return records.at(greedy_of(setting).label); }
};

}  // namespace draftsmith::evaluate
