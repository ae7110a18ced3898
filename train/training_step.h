// One optimizer step: the type of its matrix products, its micro-batches, and the gradients over them by forward and
// backward passes, with the check for NaN. Sums over steps are for the log.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "data/corpus/batches.h"
#include "data/corpus/corpus.h"
#include "distributed/process_group.h"
#include "train/batch.h"
#include "train/objectives/objective.h"
#include "train/training_checkpoint.h"
#include "train/training_log.h"

namespace draftsmith::train {

// ---- The type of matrix products, from the option `precision`

// Returns whether products are bf16 on this machine: of "auto" on CPUs with instructions for products of bf16, where
// training in bf16 was measured to be faster (base/bf16_product.h), unless DRAFTSMITH_CPU forbids the instructions.
bool trains_in_bf16(const std::string& precision, at::Device device);

// ---- Micro-batches, in order
// While a device works on a step, a thread makes the host's part of the next step's batches. On a CPU, where it would
// take the step's time, each batch is made when it is needed.

// Examples of each micro-batch of a step.
using MicroBatches = std::vector<std::vector<int64_t>>;

// Makes the host's part of a batch of these examples, in any thread.
using HostBatchMaker = std::function<HostBatch(const std::vector<int64_t>& examples)>;

class StepBatches {
 public:
  // Batches are made for `device`, `accumulate` of them a step, of which each process of `world` takes its own. Order
  // and world must outlive this.
  StepBatches(data::BatchOrder& order, HostBatchMaker make, at::Device device, int64_t accumulate,
              const ProcessGroup& world = ProcessGroup::single())
      : order_(order), make_(std::move(make)), device_(device), accumulate_(accumulate), world_(world) {}

  // Returns the examples of the step at `position` and advances it. A step never reaches over the end of an epoch.
  MicroBatches next(data::BatchPosition& position);
  // Returns the batch of the present step's next examples that are this process's, on the device. May wait for the
  // thread, but not for the device. Errors: the maker's, whichever thread they happened in; std::logic_error for other
  // examples than the next.
  Batch take(const std::vector<int64_t>& examples);

 private:
  using HostBatches = std::deque<HostBatch>;
  // A step's examples, and the positions before and after it.
  struct Step {
    MicroBatches examples;
    data::BatchPosition before, after;
  };

  Step step_at(const data::BatchPosition& position);
  std::future<HostBatches> begin(const MicroBatches& examples) const;

  data::BatchOrder& order_;
  HostBatchMaker make_;
  at::Device device_;
  int64_t accumulate_;
  const ProcessGroup& world_;
  std::optional<Step> upcoming_;  // whose batches are being made
  HostBatches ready_;             // of the present step, those that were not taken yet
  // Batches that threads make: of the present step, until the first is taken, and of the next one. The end of a future
  // waits for its thread.
  std::future<HostBatches> begun_now_, begun_next_;
};

// ---- Gradients

struct StepSettings {
  double dropout = 0;              // probability
  uint64_t seed = 1;               // of dropout
  uint64_t first_micro_step = 0;   // micro-batches of the run before this step: the counter of dropout's random stream
  int64_t pack_tokens = 0;         // of the batches
  bool autocast = false;           // matrix products in bf16 over fp32 weights
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

// ---- Sums over the steps since the last line of the log
// TrainingState holds them, so that a resumed run writes the same lines.

// Adds a step. A skipped step (result.nonfinite) adds its seconds alone.
void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds);

// Returns the log's line for the steps since the last one; `lr` and `gradient_norm` are the last step's.
StepMetrics window_metrics(const TrainingState& state, double lr, double gradient_norm);

// Begins the next line's sums.
void clear_window(TrainingState& state);

}  // namespace draftsmith::train
