// Data that the processes of one training run share: sums of a step, and the state that a run begins with.
// Micro-batches are dealt out by their number in the step, and everything random depends on that number alone, so a
// run is the same to rounding whatever the number of processes.
#pragma once

#include <optional>
#include <vector>

#include "distributed/world.h"
#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_checkpoint.h"
#include "train/training_state.h"

namespace draftsmith::train {

// Counts of one process's micro-batches, then of all.
struct StepCounts {
  std::vector<at::Tensor> losses;  // scalars (fp64), one for each micro-batch of the step; zero where another's
  int64_t labels = 0;
  bool stop = false;  // asked to stop
};

// Sums counts and gradients over all processes, each in its own type, gradients in `reduce_type` if there is one. A
// parameter without a gradient on any process stays without one; one with a gradient on some gets it on all. Errors: as
// World::sum().
void sum_step(World& world, const TrainableModel& trainable, StepCounts& counts,
              std::optional<at::ScalarType> reduce_type);

// Gives all processes the leader's weights, and the optimizer and the counters of `found`, the checkpoint that the
// leader restored (absent: none, and on the others): so a run goes on even where the others do not see its checkpoints.
// Returns the counters.
TrainingState share_start(World& world, const std::optional<StoredCheckpoint>& found, TrainableModel& trainable,
                          Optimizer& optimizer);

// Gives all processes the leader's weights.
void share_weights(World& world, TrainableModel& trainable);

}  // namespace draftsmith::train
