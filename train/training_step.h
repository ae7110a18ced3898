// One optimizer step: the type of its matrix products, its micro-batches, and the gradients over them by forward and
// backward passes, with the check for NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aten.h"
#include "data/corpus/batches.h"
#include "data/corpus/corpus.h"
#include "distributed/process_group.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

// Returns whether products are bf16 on this machine: of "auto" on CPUs with instructions for products of bf16, where
// training in bf16 was measured to be faster (base/bf16_product.h), unless DRAFTSMITH_CPU forbids the instructions.
bool trains_in_bf16(const std::string& precision, at::Device device);

// Examples of each micro-batch of a step.
using MicroBatches = std::vector<std::vector<int64_t>>;

// Returns the examples of the step at `position`, of at most `accumulate` micro-batches, and advances it. A step never
// reaches over the end of an epoch.
MicroBatches next_step(data::BatchOrder& order, data::BatchPosition& position, int64_t accumulate);

struct StepSettings {
  double dropout = 0;             // probability
  uint64_t seed = 1;              // of dropout
  uint64_t first_micro_step = 0;  // micro-batches of the run before this step: the counter of dropout's random stream
  int64_t pack_tokens = 0;        // of the batches
  bool autocast = false;          // matrix products in bf16 over fp32 weights
  int64_t step = 0;               // the step's number, for messages
  ProcessGroup* world = &ProcessGroup::single();  // micro-batch i is of the process that ProcessGroup::has(i) names
};

struct StepResult {
  double loss_sum = 0;
  int64_t labels = 0;
  int64_t divisor = 0;       // of loss and gradients: labels, or sequences (Loss::divisor)
  bool stop = false;         // of several processes, one was asked to stop: all end after this step
  double gradient_norm = 0;  // of the mean loss, before clipping; parameters without a gradient are left out
};

// Adds the gradients of the micro-batches' loss *sums* to the parameters; gradient_scale() turns them into gradients of
// the mean loss of one large batch. Of several processes all get the sums over all micro-batches. Errors: RunError for
// a loss or a gradient that is NaN or infinite (names step, corpus and examples), and as ProcessGroup::sum().
StepResult accumulate_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                                const MicroBatches& micro_batches, const StepSettings& settings);

// Returns whether gradient_scale() reduces the gradients.
bool is_clipped(const StepResult& result, double clip_norm);

// Returns the factor for the summed gradients: 1/divisor, reduced so that the norm is at most `clip_norm` (0: off).
double gradient_scale(const StepResult& result, double clip_norm);

}  // namespace draftsmith::train
