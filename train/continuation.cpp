#include "train/continuation.h"

#include "base/files.h"
#include "base/logging.h"
#include "train/best_model.h"

namespace draftsmith::train {

namespace {

namespace fs = std::filesystem;

fs::path checkpoint_of(const fs::path& parent) {
  if (const auto found = CheckpointFolder(parent / "checkpoints", {}).newest()) return *found;
  throw UserError(
      Problem{.where = parent.string(),
              .what = "no training run to continue: it holds no checkpoint",
              .expected = "a directory with checkpoints/step-.../DONE, such as a train stage's",
              .found = fs::is_directory(parent / "checkpoints") ? "no finished checkpoint" : "no folder checkpoints",
              .hint = "a run that fails before its first checkpoint (checkpoint_every) leaves none"});
}

// Copies a file or folder of the parent, if it is there, in place of the new run's.
void copy_from(const fs::path& parent, const fs::path& directory, const fs::path& name) {
  fs::remove_all(directory / name);
  if (fs::exists(parent / name)) fs::copy(parent / name, directory / name, fs::copy_options::recursive);
}

// Keeps the parent's best model, or forgets it if the new run measures something else.
void take_best(const Continuation& continuation, bool alike, TrainingState& state) {
  if (!state.best_value) return;
  const fs::path best = best_directory(continuation.parent, state.best_step);
  if (alike && fs::exists(best)) {
    copy_from(continuation.parent, continuation.directory, best.filename());
    return;
  }
  log_info("the best model of {} is not compared with later ones{}", continuation.parent.string(),
           alike ? ": it is missing" : ": validation differs");
  state.best_value.reset();
  state.best_step = state.since_best = 0;
}

}  // namespace

StoredCheckpoint continue_run(const Continuation& continuation, const RunRecord& own, TrainableModel& trainable) {
  StoredCheckpoint stored = read_checkpoint(checkpoint_of(continuation.parent));
  Problems problems;
  check_continues(own, stored.record, problems);
  problems.throw_if_any();
  load_weights(stored, trainable);
  log_info("continuing the run of {} after step {}", continuation.parent.string(), stored.state.step);
  TrainingState& state = stored.state;
  state.finished = false;
  make_directories(continuation.directory);
  for (const char* name : {"metrics.jsonl", "tensorboard"}) {
    copy_from(continuation.parent, continuation.directory, name);
  }
  take_best(continuation, validate_alike(own, stored.record), state);
  // The parent's patience ran out; the new run's begins anew.
  const int64_t patience = continuation.options.validation.patience;
  if (patience > 0 && state.since_best >= patience) state.since_best = 0;
  return stored;
}

}  // namespace draftsmith::train
