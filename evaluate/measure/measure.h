// Measurement of all settings of a task on its lines. Finished measurements are kept on disk, and an interrupted
// evaluation continues after the last one.
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

// Records of each setting by its label, one record for each line.
using TaskRecords = std::map<std::string, SettingRecords>;

// Hint in the message of an evaluation that was stopped.
inline constexpr const char* kHowToGoOn = "finished measurements are kept; run the evaluation again to go on";

// Store of finished measurements in a file of JSON lines. The first line identifies the suite.
class MeasurementStore {
 public:
  // Reads the measurements in `file` if its key equals `key`, which identifies suite, data, models and build.
  // Empties the file otherwise.
  MeasurementStore(std::filesystem::path file, const std::string& key);

  // Returns the records of the batch that begins at `first_line` by label, or nullptr if it was not measured.
  const std::map<std::string, SettingRecords>* find(const std::string& task, int64_t first_line) const;
  // Adds a measured batch and writes it to the file at once. Errors: RunError if it cannot be written.
  void add(const std::string& task, int64_t first_line, const std::map<std::string, SettingRecords>& batch);
  // Returns the number of batches that the constructor read.
  int64_t resumed() const { return resumed_; }
  // Removes the file after a complete evaluation.
  void remove();

 private:
  void load(const std::string& key);
  std::filesystem::path file_;
  std::ofstream stream_;
  std::map<std::pair<std::string, int64_t>, std::map<std::string, SettingRecords>> batches_;
  int64_t resumed_ = 0;
};

// Task with all that its measurement reads.
struct MeasureTask {
  std::string name;
  std::vector<Prompt> prompts;
  std::vector<Setting> settings;
  int64_t max_new_tokens = 0;
  int64_t timed = 0;  // number of timed lines; 0: all
};

// Measures all settings on all lines. Settings take turns of a few batches, and each round of turns begins with another
// setting, so that drifts of the machine affect all alike. A turn begins with a few untimed tokens, which hide what ran
// before.
TaskRecords measure_task(const MeasureTask& task, const SuiteOptions& options, Engine& engine, MeasurementStore& store,
                         const SuiteContext& context);

}  // namespace draftsmith::evaluate
