// The log of a run: the console and metrics.jsonl, one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "train/validation.h"

namespace draftsmith::train {

struct TrainingLogOptions {
  ProgressStyle progress = ProgressStyle::kQuiet;
  int64_t last_step = 0;    // of the checkpoint that the run resumes from: later lines are dropped
  bool validated = true;    // false: the validation after last_step comes again, and its line is dropped too
  int64_t total_steps = 0;  // expected
};

class TrainingLog {
 public:
  // Continues the log in `directory`. Errors: UserError for a file that cannot be written.
  TrainingLog(const std::filesystem::path& directory, const TrainingLogOptions& options);

  // Moves the progress bar by one step, and shows the measures of window_line() (train/training_step.h).
  void advance(const nlohmann::ordered_json& measures);
  // Prints the progress if a line is due, as long steps and validations ask.
  void tick() { progress_->tick(); }
  // Writes these measures.
  void add(const nlohmann::ordered_json& measures);
  // Writes a validation of the model after `step`, which took `seconds`. `is_best`: by the run's own measure.
  void add(int64_t step, const ValidationResult& result, bool is_best, double seconds);
  void finish();

 private:
  std::filesystem::path file_;
  std::ofstream out_;
  std::unique_ptr<Progress> progress_;
};

// Drops the lines of a metrics.jsonl whose step is above `last_step`, and an incomplete last line of a killed run;
// unless `validated`, also the line of the validation after that step.
void truncate_metrics(const std::filesystem::path& file, int64_t last_step, bool validated = true);

// Writes validation.json from a run's metrics.jsonl: {"model": the measures at the step `kept`, of the model that the
// run keeps, "last": those at the last validation}, each with its step. Errors: RunError when there is no such line.
void write_validation_summary(const std::filesystem::path& directory, int64_t kept);

}  // namespace draftsmith::train
