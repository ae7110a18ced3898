// The log of a run: the console, metrics.jsonl (one JSON object a line) and TensorBoard. The record of a run in its
// checkpoints, and the process's memory for large temporaries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/logging.h"
#include "train/options.h"
#include "train/tensorboard.h"
#include "train/trainer_inputs.h"
#include "train/validation.h"

namespace draftsmith::train {

// ---- Memory for the large temporaries of training on a CPU

// Keeps freed memory in the process instead of returning it to the kernel after every large temporary. By default each
// of them is mapped, zeroed page by page and unmapped again, which costs training a sizeable part of its time. Acts on
// the whole process; further calls change nothing. No effect with C libraries other than glibc.
void keep_freed_memory();

// ---- The record of a run
// What a training checkpoint says about its run, so that the run is not mixed up with another one, and a later run with
// other settings can continue it.

struct RunRecord {
  std::string identity = {};                          // hash of what the run computes
  int64_t threads = 0;                                // of the processor
  nlohmann::ordered_json training = {};               // the resolved TrainOptions that change the result
  std::map<std::string, std::string> inputs = {};     // inputs that decide how training goes on, by option
  std::map<std::string, std::string> validated = {};  // inputs of the validation, by option
};

// Returns the record of a run of this process.
RunRecord record_run(const TrainerInputs& inputs, const TrainOptions& options);

void to_json(nlohmann::ordered_json& json, const RunRecord& record);
// Adds a problem at `where` for missing keys and keys of other types.
RunRecord run_record_from_json(const nlohmann::json& json, const std::string& where, Problems& problems);

// Reports a problem for each setting and input of `own` that must be as in the parent and is not. Length, learning
// rate, schedule, clipping, precision, reduce_dtype, non-finite steps, validation and `keep` may differ.
void check_continues(const RunRecord& own, const RunRecord& parent, Problems& problems);

// Returns whether both runs validate alike, so that their measures can be compared.
bool validate_alike(const RunRecord& own, const RunRecord& parent);

// ---- The log

// Measures of the steps since the last line.
struct StepMetrics {
  int64_t step = 0;
  double epochs = 0;
  int64_t labels = 0;            // since the start
  double loss = 0;               // the objective's, per label, mean over the updates since the last line; NaN: none
  double lr = 0;                 // of the last step
  double gradient_norm = 0;      // of the last step, before clipping; not finite if the step was skipped
  double largest_norm = 0;       // of the updates since the last line, before clipping
  double clipped = 0;            // share of these updates whose gradients were scaled down to clip_norm
  int64_t skipped = 0;           // steps without an update, since the start
  double labels_per_second = 0;  // target tokens, padding and validations not counted
  double seconds = 0;            // since the start, all sessions of the run together
  // Of several processes: share of the time since the last line in which this one waited for others or communicated.
  std::optional<double> waited = {};
};

struct ValidatedStep {
  int64_t step = 0;
  bool is_best = false;  // by the run's own measure
  double seconds = 0;    // of the validation
};

struct TrainingLogOptions {
  ProgressStyle progress = ProgressStyle::kQuiet;
  bool tensorboard = true;
  int64_t last_step = 0;    // of the checkpoint that the run resumes from: later lines are dropped
  bool validated = true;    // false: the validation after last_step comes again, and its line is dropped too
  int64_t total_steps = 0;  // expected
};

class TrainingLog {
 public:
  // Continues the log in `directory`. Errors: UserError for a file that cannot be written.
  TrainingLog(const std::filesystem::path& directory, const TrainingLogOptions& options);

  // Moves the progress bar by one step, and shows the measures so far.
  void advance(const StepMetrics& metrics);
  void add(const StepMetrics& metrics);
  void add(const ValidatedStep& validated, const ValidationResult& result);
  void finish();

 private:
  void write_line(const nlohmann::ordered_json& line);

  std::filesystem::path file_;
  std::ofstream out_;
  std::optional<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
};

// Drops the lines of a metrics.jsonl whose step is above `last_step`, and an incomplete last line of a killed run;
// unless `validated`, also the line of the validation after that step.
void truncate_metrics(const std::filesystem::path& file, int64_t last_step, bool validated = true);

// Writes validation.json from a run's metrics.jsonl: {"model": the measures at the step `kept`, of the model that the
// run keeps, "last": those at the last validation}, each with its step. Errors: RunError when there is no such line.
void write_validation_summary(const std::filesystem::path& directory, int64_t kept);

}  // namespace draftsmith::train
