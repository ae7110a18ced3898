// Match rates of a suite, and the counting pass of a task: every setting decodes every line once, untimed. It gives
// outputs and counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/results.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// ---- Match rates
// See infer/forced/match_rates.h.

// Table of match rates with the prompts that it counts on.
struct MatchPrompts {
  const MatchRateTable& rates;
  std::string task;
  std::string key;  // MeasuredTask::key
  std::span<const Prompt> prompts;
  int64_t max_new_tokens = 0;
};

// Returns the match rates of all tables. Errors: as measure_missing().
std::vector<MatchRateResult> measure_match_rates(const std::vector<MatchPrompts>& tables, Engine& engine,
                                                 MeasurementStore& store, const SuiteContext& context);

// ---- The counting pass

// Records of each setting by its label, one record for each line.
using TaskRecords = std::map<std::string, SettingRecords>;

// Returns the setting's label with a hash of method and parameters, which names its measurements.
std::string measured_name(const Setting& setting);

// Task with all that its measurement reads.
struct MeasureTask {
  std::string name;
  std::string key;  // MeasuredTask::key
  std::vector<Prompt> prompts;
  std::vector<Setting> settings;
  int64_t max_new_tokens = 0;
  int64_t timed = 0;       // number of timed lines; 0: all
  int64_t batch_size = 1;  // lines decoded together by settings without a batch size of their own

  int64_t lines() const { return std::ssize(prompts); }
  int64_t batch_size_of(const Setting& setting) const { return setting.decode.batch_size.value_or(batch_size); }
  // Returns the prompts of a setting's batch that begins at a line.
  std::span<const Prompt> batch(const Setting& setting, int64_t first_line) const;
  // Returns the fewest lines that every setting decodes in whole batches.
  int64_t common_batch() const;
};

// Returns the task's counting pass. The result refers to task, engine and store.
std::vector<Measurement> counting_pass(const MeasureTask& task, Engine& engine, const MeasurementStore& store);

// Returns the records of a counting pass whose measurements are all in the store. They have no times. Settings that
// failed have none.
TaskRecords counted_records(const MeasureTask& task, const MeasurementStore& store);

// Returns the messages of settings whose counting pass failed, by label. The greedy baseline's failure ends the
// evaluation, since all others are compared with it.
std::map<std::string, std::string> failed_countings(const MeasureTask& task, const MeasurementStore& store);

// Returns DecodeBatch::window of the batch that begins at `first_line`: what the batch before it carried on when it was
// counted. So windows depend neither on turns nor on repetitions, and a continued evaluation has the same.
std::optional<int64_t> first_window(const Setting& setting, const SettingRecords& records, int64_t first_line);

}  // namespace draftsmith::evaluate
