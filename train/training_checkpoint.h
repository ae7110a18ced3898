// Training checkpoints: everything a run needs to go on as if it had never stopped.
//
//   step-000001000/model/                the trained parameters (fp32), see TrainableModel::save
//   step-000001000/optimizer.safetensors the optimizer's tensors
//   step-000001000/state.json            counters, and the record of the run (run_record.h)
//   step-000001000/DONE                  written last
//
// A checkpoint is written under a temporary name and renamed; older ones are removed only afterwards. Of several
// processes the leader alone reads and writes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "distributed/process_group.h"
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

}  // namespace draftsmith::train
