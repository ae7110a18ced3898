// Runs the settings of one task on its lines, interleaved, and keeps every finished measurement on disk so that an
// interrupted evaluation goes on where it stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/measure/context.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Records by label of the setting, one for each line.
using TaskRecords = std::map<std::string, SettingRecords>;

// The hint of an evaluation that was asked to stop.
inline constexpr const char* kHowToGoOn = "finished measurements are kept; run the evaluation again to go on";

// Finished measurements as JSON lines; the first line says what suite they belong to.
class MeasurementStore {
 public:
  // Takes up the measurements in `file` if they belong to the same suite, data, models and build (`key`),
  // else starts anew.
  MeasurementStore(std::filesystem::path file, const std::string& key);

  // A measured batch's records by label, or nullptr. `first_line` identifies the batch.
  const std::map<std::string, SettingRecords>* find(const std::string& task, int64_t first_line) const;
  // Adds and flushes.
  void add(const std::string& task, int64_t first_line, const std::map<std::string, SettingRecords>& batch);
  int64_t resumed() const { return resumed_; }
  // Removes the file: the evaluation is complete.
  void remove();

 private:
  void load(const std::string& key);
  std::filesystem::path file_;
  std::ofstream stream_;
  std::map<std::pair<std::string, int64_t>, std::map<std::string, SettingRecords>> batches_;
  int64_t resumed_ = 0;
};

struct MeasureTask {
  std::string name;
  std::vector<Prompt> prompts;
  std::vector<Setting> settings;
  int64_t max_new_tokens = 0;
  int64_t timed = 0;  // lines; 0: all
};

// For some batches of lines and every repetition, all settings one after the other, beginning with another one each
// time, so that drifts of the machine's speed hit all alike. In its turn a setting goes on for a while, and begins with
// a few untimed tokens: whose model ran before matters little then.
TaskRecords measure_task(const MeasureTask& task, const SuiteOptions& options, Engine& engine, MeasurementStore& store,
                         const SuiteContext& context);

}  // namespace draftsmith::evaluate
