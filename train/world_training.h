// State that the processes of one training run begin with; what they share in a step is in gradient_sums.h.
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

// Gives all processes the leader's weights, and the optimizer and the counters of `found`, the checkpoint that the
// leader restored (absent: none, and on the others): so a run goes on even where the others do not see its checkpoints.
// Returns the counters.
TrainingState share_start(World& world, const std::optional<StoredCheckpoint>& found, TrainableModel& trainable,
                          Optimizer& optimizer);

// Gives all processes the leader's weights.
void share_weights(World& world, TrainableModel& trainable);

}  // namespace draftsmith::train
