// Training checkpoints: everything a run needs to go on as if it had never stopped.
//
//   step-000001000/model/                the trained parameters (fp32), see TrainableModel::save
//   step-000001000/optimizer.safetensors the optimizer's tensors
//   step-000001000/state.json            counters, and the identity of the run
//   step-000001000/DONE                  written last
//
// A checkpoint is written under a temporary name and renamed; older ones are removed only afterwards. Of several
// processes the leader alone reads and writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "data/corpus/batches.h"
#include "train/optimizers/optimizer.h"
#include "train/schedule.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

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
  // Checkpoints of a run with another identity, a hash of what the run computes, are refused.
  CheckpointFolder(std::filesystem::path folder, std::string identity)
      : folder_(std::move(folder)), identity_(std::move(identity)) {}

  // Writes the checkpoint of state.step, points `last` to it and removes the others. If that step already has one, only
  // its counters are replaced. Errors: RunError.
  void write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
             const model::SaveOptions& save) const;

  // Returns the directory of the newest finished checkpoint, if there is one.
  std::optional<std::filesystem::path> newest() const;

  // Restores weights and optimizer from a checkpoint. Returns the counters. Errors: UserError when it belongs to
  // another run or is damaged. Warns when it was written with another number of threads.
  TrainingState restore(const std::filesystem::path& checkpoint, TrainableModel& trainable, Optimizer& optimizer) const;

 private:
  std::filesystem::path folder_;
  std::string identity_;
};

}  // namespace draftsmith::train
