// Contents of a training run's directory while it goes on: checkpoints, which have everything that it needs to go
// on as if it had never stopped, and its log, one JSON object a line.
//
//   checkpoints/step-000001000/
//     model/                 the trained parameters (fp32), see TrainableModel::save
//     optimizer.safetensors  the optimizer's tensors
//     state.json             counters, and the identity of the run
//     DONE                   written last
//   metrics.jsonl            the log
//   validation.json          the measures of the result, where the run validates
//
// A checkpoint is renamed from a temporary name; older ones are removed afterwards. Only the leader reads and writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "base/logging.h"
#include "data/corpus/batches.h"
#include "train/optimizers/optimizer.h"
#include "train/schedule.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"
#include "train/validation.h"

namespace draftsmith::train {

// ---- Checkpoints

// Every counter of a training run. Random numbers are functions of (seed, counter) everywhere, so a run resumes from
// these counters, the weights and the optimizer's tensors.
struct TrainingState {
  int64_t step = 0;              // updates done
  int64_t micro_step = 0;        // micro-batches done: the counter of dropout's random stream
  data::BatchPosition position;  // of the next micro-batch
  double epochs = 0;             // done, as a fraction
  int64_t labels = 0;            // target tokens that entered the loss
  int64_t examples = 0;
  double seconds = 0;  // spent in all sessions of the run

  // Since the last line of the log.
  double window_loss = 0;
  int64_t window_labels = 0;
  int64_t window_divisor = 0;  // of window_loss
  double window_seconds = 0;
  int64_t window_updates = 0;
  int64_t window_clipped = 0;      // updates whose gradients were scaled down
  double window_largest_norm = 0;  // of gradients, before clipping

  int64_t validations = 0;
  std::optional<double> best_value;  // of the validation measure
  int64_t best_step = 0;
  int64_t since_best = 0;       // validations without a new best
  bool validation_due = false;  // after this step: the run was stopped before it
  bool finished = false;

  Progressed progressed() const;
};

void to_json(nlohmann::json& json, const TrainingState& state);
// Errors: nlohmann::json::exception for a key that is missing or of another type.
void from_json(const nlohmann::json& json, TrainingState& state);

class CheckpointFolder {
 public:
  // Checkpoints of a run with another identity, a hash of what the run computes, are refused. `bf16`: the run
  // multiplies in that type here.
  CheckpointFolder(std::filesystem::path folder, std::string identity, bool bf16)
      : folder_(std::move(folder)), identity_(std::move(identity)), bf16_(bf16) {}

  // Writes the checkpoint of state.step, points `last` to it and removes the others. If that step already has one, only
  // its counters are replaced. Errors: RunError.
  void write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
             const model::SaveOptions& save) const;

  // Returns the directory of the newest finished checkpoint, if there is one.
  std::optional<std::filesystem::path> newest() const;

  // Restores weights and optimizer from a checkpoint. Returns the counters. Errors: UserError when it belongs to
  // another run or is damaged. Warns when it was written with other threads or products.
  TrainingState restore(const std::filesystem::path& checkpoint, TrainableModel& trainable, Optimizer& optimizer) const;

 private:
  std::filesystem::path folder_;
  std::string identity_;
  bool bf16_;
};

// ---- The log, for the console and in metrics.jsonl

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

  // Moves the progress bar by one step, and shows the measures of window_line().
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
// run keeps, "last": those at the last validation}, each with its step. Warns, and writes null, where there is no such
// line.
void write_validation_summary(const std::filesystem::path& directory, int64_t kept);

// ---- Sums over the steps since the last line of the log
// TrainingState holds them, so that a resumed run writes the same lines.

// Adds a step.
void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds);

// Returns the log's line of the steps since the last one: measures by name, the loss per label or sequence, labels a
// second without padding and validations. `lr` and `gradient_norm`, before clipping, are the last step's.
nlohmann::ordered_json window_line(const TrainingState& state, double lr, double gradient_norm);

// Begins the next line's sums.
void clear_window(TrainingState& state);

}  // namespace draftsmith::train
