// Training checkpoints: everything a run needs to go on as if it had never stopped.
//
//   step-000001000/model/                the trained parameters (fp32), see TrainableModel::save
//   step-000001000/optimizer.safetensors the optimizer's tensors
//   step-000001000/state.json            counters, and the identity of the run
//   step-000001000/DONE                  written last
//
// A checkpoint is written under a temporary name and renamed; older ones are removed only afterwards.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_state.h"

namespace draftsmith::train {

class CheckpointFolder {
 public:
  // `identity` names the run (a hash of what it computes); checkpoints of another are refused.
  CheckpointFolder(std::filesystem::path folder, std::string identity);

  // Writes the checkpoint of state.step, points `last` to it and removes the others. If that step already has one, only
  // its counters are replaced. Errors: RunError.
  void write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
             const model::SaveOptions& save);

  // Returns the directory of the newest finished checkpoint, if there is one.
  std::optional<std::filesystem::path> newest() const;

  // Restores weights, optimizer and counters from a checkpoint. Errors: UserError when it belongs to another run or is
  // damaged.
  TrainingState restore(const std::filesystem::path& checkpoint, TrainableModel& trainable, Optimizer& optimizer) const;

 private:
  std::filesystem::path folder_;
  std::string identity_;
};

}  // namespace draftsmith::train
