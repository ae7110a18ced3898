// Training checkpoints: everything a run needs to go on as if it had never stopped.
//
//   step-000001000/model/                the trained parameters (fp32), see TrainableModel::save
//   step-000001000/optimizer.safetensors the optimizer's tensors
//   step-000001000/state.json            counters, and the record of the run (run_record.h)
//   step-000001000/DONE                  written last
//
// A checkpoint is written under a temporary name and renamed; older ones are removed only afterwards.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/optimizers/optimizer.h"
#include "train/run_record.h"
#include "train/trainable/trainable_model.h"
#include "train/training_state.h"

namespace draftsmith::train {

// The numbers of a checkpoint, without its tensors.
struct StoredCheckpoint {
  std::filesystem::path directory;
  RunRecord record;
  TrainingState state;
  int64_t optimizer_steps = 0;
};

// Reads a checkpoint's state.json. Errors: UserError when it is damaged.
StoredCheckpoint read_checkpoint(const std::filesystem::path& checkpoint);

// Loads the weights and the optimizer's tensors. Errors: UserError when they do not fit.
void load_checkpoint(const StoredCheckpoint& stored, TrainableModel& trainable, Optimizer& optimizer);

class CheckpointFolder {
 public:
  // `record` describes the run; checkpoints of a run with another identity are refused.
  CheckpointFolder(std::filesystem::path folder, RunRecord record);

  // Writes the checkpoint of state.step, points `last` to it and removes the others. If that step already has one, only
  // its counters are replaced. Errors: RunError.
  void write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
             const model::SaveOptions& save);

  // Returns the directory of the newest finished checkpoint, if there is one.
  std::optional<std::filesystem::path> newest() const;

  // Restores weights, optimizer and counters from a checkpoint. Errors: UserError when it belongs to another run or is
  // damaged. Warns when it was written with another number of threads.
  TrainingState restore(const std::filesystem::path& checkpoint, TrainableModel& trainable, Optimizer& optimizer) const;

 private:
  std::filesystem::path folder_;
  RunRecord record_;
};

}  // namespace draftsmith::train
