// Continuation of a run: a new run, with another length or rate, goes on from the last checkpoint of a finished or
// failed one, with its optimizer, its counters and its log.
#pragma once

#include <filesystem>

#include "train/run_record.h"
#include "train/training_checkpoint.h"

namespace draftsmith::train {

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
