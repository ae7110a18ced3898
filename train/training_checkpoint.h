// Training checkpoints: everything a run needs to go on as if it had never stopped. Also the best model so far, and the
// continuation of a run by another one.
//
//   step-000001000/model/                the trained parameters (fp32), see TrainableModel::save
//   step-000001000/optimizer.safetensors the optimizer's tensors
//   step-000001000/state.json            counters, and the record of the run (training_log.h)
//   step-000001000/DONE                  written last
//
// A checkpoint is written under a temporary name and renamed; older ones are removed only afterwards. Of several
// processes the leader alone reads and writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "data/corpus/batches.h"
#include "distributed/process_group.h"
#include "train/optimizers/optimizer.h"
#include "train/schedule.h"
#include "train/trainable/trainable_model.h"
#include "train/training_log.h"

namespace draftsmith::train {

// Every counter of a training run. Random numbers are functions of (seed, counter) everywhere, so a run resumes from
// these counters, the weights and the optimizer's tensors.
struct TrainingState {
  int64_t step = 0;              // steps done, skipped ones counted
  int64_t micro_step = 0;        // micro-batches done: the counter of dropout's random stream
  data::BatchPosition position;  // of the next micro-batch
  double epochs = 0;             // done, as a fraction
  int64_t labels = 0;            // target tokens that entered the loss
  int64_t examples = 0;
  double seconds = 0;            // spent in all sessions of the run
  int64_t skipped = 0;           // steps without an update, since a loss or a gradient was not finite
  int64_t skipped_in_a_row = 0;  // the last of them, without an update since

  // Since the last line of the log. Skipped steps count in the seconds alone.
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

nlohmann::ordered_json to_json(const TrainingState& state);
// Errors: UserError naming the file `where` and every key that is missing or out of range.
TrainingState state_from_json(const nlohmann::json& json, const std::string& where);

// ---- The best model of a run so far, by its validations
//   RUN/best-000000800/, best     the model directory after that step, and a link to it

// Returns the directory of a run's best model after `step`.
std::filesystem::path best_directory(const std::filesystem::path& run, int64_t step);

// Counts a validation in the state. Returns whether its value is the best so far of a measure (ValidationOptions).
bool count_validation(TrainingState& state, double value, const std::string& measure);

// Points `best` to the best model after `step` and removes older ones.
void keep_best_only(const std::filesystem::path& run, int64_t step);

// Throws RunError unless the value of a measure is finite; `where` names the validation corpus.
void require_finite_measure(double value, const std::string& measure, int64_t step, const std::string& where);

// ---- Checkpoints

// The numbers of a checkpoint, without its tensors.
struct StoredCheckpoint {
  std::filesystem::path directory;
  RunRecord record;
  TrainingState state;
  int64_t optimizer_steps = 0;
};

// Reads a checkpoint's state.json. Errors: UserError when it is damaged.
StoredCheckpoint read_checkpoint(const std::filesystem::path& checkpoint);

// Loads the weights. Errors: UserError when they do not fit.
void load_weights(const StoredCheckpoint& stored, TrainableModel& trainable);

// Loads the optimizer's tensors and steps; all processes call it, and `stored` is the leader's. Errors: UserError when
// they do not fit.
void load_optimizer(const StoredCheckpoint& stored, Optimizer& optimizer, ProcessGroup& world);

class CheckpointFolder {
 public:
  // `record` describes the run; checkpoints of a run with another identity are refused. `world` must outlive this.
  CheckpointFolder(std::filesystem::path folder, RunRecord record, ProcessGroup& world = ProcessGroup::single());

  // Writes the checkpoint of state.step, points `last` to it and removes the others. If that step already has one, only
  // its counters are replaced. All processes call it. Errors: RunError.
  void write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
             const model::SaveOptions& save);

  // Returns the directory of the newest finished checkpoint, if there is one.
  std::optional<std::filesystem::path> newest() const;

  // Restores weights and counters from a checkpoint; load_optimizer() does the rest. Errors: UserError when it belongs
  // to another run or is damaged. Warns when it was written with another number of threads.
  StoredCheckpoint restore(const std::filesystem::path& checkpoint, TrainableModel& trainable) const;

 private:
  // Returns, on all processes, what the leader says.
  bool leader_says(bool value, at::Device device) const;
  void write_files(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
                   const model::SaveOptions& save);

  std::filesystem::path folder_;
  RunRecord record_;
  ProcessGroup& world_;
};

// ---- Continuation of a run
// A new run, with another length or rate, goes on from the last checkpoint of a finished or failed one, with its
// optimizer, its counters and its log.

struct Continuation {
  std::filesystem::path parent;     // directory of the run that is continued
  std::filesystem::path directory;  // of the new run
  const TrainOptions& options;      // of the new run
};

// Restores weights and counters from the parent's newest checkpoint, for load_optimizer() to do the rest, and copies
// its log into the new run's directory. The best model so far is copied too where both runs validate alike; otherwise
// the new run has none yet. Errors: UserError for a directory without a checkpoint, and for settings or inputs that
// must agree and do not.
StoredCheckpoint continue_run(const Continuation& continuation, const RunRecord& own, TrainableModel& trainable);

}  // namespace draftsmith::train
