// Every counter of a training run. Random numbers are functions of (seed, counter) everywhere, so a run resumes from
// these counters, the weights and the optimizer's tensors.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "data/corpus/batches.h"
#include "train/period.h"

namespace draftsmith::train {

struct TrainingState {
  int64_t step = 0;              // steps done, skipped ones counted
  int64_t micro_step = 0;        // micro-batches done: the counter of dropout's random stream
  data::BatchPosition position;  // of the next micro-batch
  double epochs = 0;             // done, as a fraction
  int64_t labels = 0;            // target tokens that entered the loss
  int64_t examples = 0;
  double seconds = 0;            // spent in all sessions of the run
  int64_t skipped = 0;           // steps without an update, since a loss or a gradient was not finite
  int64_t skipped_in_a_row = 0;  // the last of them, without an update since

  // Since the last line of the log. Skipped steps count in the seconds alone.
  double window_loss = 0;
  int64_t window_labels = 0;
  int64_t window_divisor = 0;  // of window_loss
  double window_seconds = 0;
  int64_t window_updates = 0;
  int64_t window_clipped = 0;      // updates whose gradients were scaled down
  double window_largest_norm = 0;  // of gradients, before clipping

  int64_t validations = 0;
  std::optional<double> best_value;  // of the validation measure
  int64_t best_step = 0;
  int64_t since_best = 0;       // validations without a new best
  bool validation_due = false;  // after this step: the run was stopped before it
  bool finished = false;

  Progressed progressed() const;
};

nlohmann::ordered_json to_json(const TrainingState& state);
// Errors: UserError naming the file `where` and every key that is missing or out of range.
TrainingState state_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace draftsmith::train
