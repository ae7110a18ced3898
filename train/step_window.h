// Sums over the steps since the last line of the log, which TrainingState holds so that a resumed run writes the same
// lines.
#pragma once

#include "train/training_log.h"
#include "train/training_state.h"
#include "train/training_step.h"

namespace draftsmith::train {

// Adds a step. A skipped step (result.nonfinite) adds its seconds alone.
void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds);

// Returns the log's line for the steps since the last one; `lr` and `gradient_norm` are the last step's.
StepMetrics window_metrics(const TrainingState& state, double lr, double gradient_norm);

// Begins the next line's sums.
void clear_window(TrainingState& state);

}  // namespace draftsmith::train
