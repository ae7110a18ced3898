// Data-parallel training: the state that all processes begin with, and the sums of their gradients. Micro-batches are
// divided by their number in the step, and everything random depends on that number alone, so a run is the same to
// rounding whatever the world size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/process_group.h"
#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_checkpoint.h"

namespace draftsmith::train {

// Gives all processes the leader's weights, and the optimizer and the counters of `found`, the checkpoint that the
// leader restored (absent: none, and on the others): so a run goes on even where the others do not see its checkpoints.
// Returns the counters.
TrainingState share_start(ProcessGroup& world, const std::optional<StoredCheckpoint>& found, TrainableModel& trainable,
                          Optimizer& optimizer);

// Gives all processes the leader's weights.
void share_weights(ProcessGroup& world, TrainableModel& trainable);

// Numbers that are summed with the gradients.
struct StepCounts {
  std::vector<at::Tensor> losses;  // scalars (fp64), one for each micro-batch of the step; zero where another's
  int64_t labels = 0;
  int64_t divisor = 0;  // of the losses
  bool stop = false;    // asked to stop
};

// Replaces counts and gradients by their sums over all processes. A parameter without a gradient on any process stays
// without one; one with a gradient on some gets it on all. `type`: in which gradients travel and add up; absent: their
// own. Errors: as ProcessGroup::sum().
void sum_gradients(ProcessGroup& world, const TrainableModel& trainable, std::optional<at::ScalarType> type,
                   StepCounts& counts);

}  // namespace draftsmith::train
