// The log of a run: the console, metrics.jsonl (one JSON object a line) and TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/logging.h"
#include "train/tensorboard.h"
#include "train/validation.h"

namespace draftsmith::train {

// Measures of the steps since the last line.
struct StepMetrics {
  int64_t step = 0;
  double epochs = 0;
  int64_t labels = 0;            // since the start
  double loss = 0;               // the objective's, per label, mean over the updates since the last line; NaN: none
  double lr = 0;                 // of the last step
  double gradient_norm = 0;      // of the last step, before clipping; not finite if the step was skipped
  double largest_norm = 0;       // of the updates since the last line, before clipping
  double clipped = 0;            // share of these updates whose gradients were scaled down to clip_norm
  int64_t skipped = 0;           // steps without an update, since the start
  double labels_per_second = 0;  // target tokens, padding and validations not counted
  double seconds = 0;            // since the start, all sessions of the run together
  // Of several processes: share of the time since the last line in which this one waited for others or communicated.
  std::optional<double> waited = {};
};

struct ValidatedStep {
  int64_t step = 0;
  bool is_best = false;  // by the run's own measure
  double seconds = 0;    // of the validation
};

struct TrainingLogOptions {
  ProgressStyle progress = ProgressStyle::kQuiet;
  bool tensorboard = true;
  int64_t last_step = 0;    // of the checkpoint that the run resumes from: later lines are dropped
  bool validated = true;    // false: the validation after last_step comes again, and its line is dropped too
  int64_t total_steps = 0;  // expected
};

class TrainingLog {
 public:
  // Continues the log in `directory`. Errors: UserError for a file that cannot be written.
  TrainingLog(const std::filesystem::path& directory, const TrainingLogOptions& options);

  // Moves the progress bar by one step, and shows the measures so far.
  void advance(const StepMetrics& metrics);
  void add(const StepMetrics& metrics);
  void add(const ValidatedStep& validated, const ValidationResult& result);
  void finish();

 private:
  void write_line(const nlohmann::ordered_json& line);

  std::filesystem::path file_;
  std::ofstream out_;
  std::optional<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
};

// Drops the lines of a metrics.jsonl whose step is above `last_step`, and an incomplete last line of a killed run;
// unless `validated`, also the line of the validation after that step.
void truncate_metrics(const std::filesystem::path& file, int64_t last_step, bool validated = true);

// Writes validation.json from a run's metrics.jsonl: {"model": the measures at the step `kept`, of the model that the
// run keeps, "last": those at the last validation}, each with its step. Errors: RunError when there is no such line.
void write_validation_summary(const std::filesystem::path& directory, int64_t kept);

}  // namespace draftsmith::train
