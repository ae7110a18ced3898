// The gradients of one optimizer step: forward and backward passes over its micro-batches, and the check for NaN.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "data/corpus/corpus.h"
#include "distributed/process_group.h"
#include "train/objectives/objective.h"
#include "train/step_batches.h"

namespace draftsmith::train {

struct StepSettings {
  double dropout = 0;              // probability
  uint64_t seed = 1;               // of dropout
  uint64_t first_micro_step = 0;   // micro-batches of the run before this step: the counter of dropout's random stream
  int64_t pack_tokens = 0;         // of the batches
  bool autocast = false;           // matrix products in bf16 over fp32 weights
  bool recompute = false;          // activation checkpointing: layers are computed again in the backward pass
  int64_t step = 0;                // the step's number, for messages
  StepBatches* batches = nullptr;  // gives the batches, in this order; nullptr: they are made here
  ProcessGroup* world = &ProcessGroup::single();   // shares the micro-batches: micro-batch i is of the process that
                                                   // ProcessGroup::has(i) names
  std::optional<at::ScalarType> reduce_type = {};  // in which gradients are summed over processes; absent: their own
};

struct StepResult {
  double loss_sum = 0;
  int64_t labels = 0;
  int64_t divisor = 0;       // of loss and gradients: labels, or sequences (Loss::divisor)
  bool stop = false;         // of several processes, one was asked to stop: all end after this step
  double gradient_norm = 0;  // of the mean loss, before clipping; parameters without a gradient are left out
  // Present if a loss or a gradient is NaN or infinite: names step, corpus and examples. No update may follow.
  std::optional<Problem> nonfinite = {};
};

// Adds the gradients of the micro-batches' loss *sums* to the parameters; gradient_scale() turns them into gradients of
// the mean loss of one large batch. Of several processes all get the sums over all micro-batches. Errors: as
// ProcessGroup::sum().
StepResult accumulate_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                                const MicroBatches& micro_batches, const StepSettings& settings);

// Returns whether gradient_scale() reduces the gradients.
bool is_clipped(const StepResult& result, double clip_norm);

// Returns the factor for the summed gradients: 1/divisor, reduced so that the norm is at most `clip_norm` (0: off).
double gradient_scale(const StepResult& result, double clip_norm);

}  // namespace draftsmith::train
