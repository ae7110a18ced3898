// The options that decide what a training run computes, as recipes and `--set` give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"
#include "data/corpus/batches.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/schedule.h"

namespace draftsmith::train {

struct ValidationOptions {
  std::string every = "1 epochs";  // a period
  int64_t max_examples = 0;        // 0: all
  int64_t bleu_examples = 0;       // 0: no BLEU
  int64_t draft_examples = 0;      // 0: no speculative decode
  int64_t draft_window = 5;
  double draft_temperature = 0;
  int64_t max_new_tokens = 128;
  int64_t token_budget = 8192;
  std::string measure = "loss";
  int64_t patience = 0;  // 0: no early stopping
  static Fields<ValidationOptions> fields();
};

struct TrainOptions {
  std::string length = "1 epochs";  // a period
  ObjectiveOptions objective;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  data::BatchOptions batches;
  ValidationOptions validation;
  int64_t accumulate = 1;
  double clip_norm = 1.0;         // 0: no clipping
  std::optional<double> dropout;  // absent: the model's own
  uint64_t seed = 1;              // of dropout
  std::string precision = "fp32";
  std::string keep = "best";
  // The following fields change no result.
  std::string checkpoint_every = "5 minutes";  // or a period, or empty: at interruptions and the end
  int64_t log_every = 50;
  static Fields<TrainOptions> fields();
};

}  // namespace draftsmith::train
