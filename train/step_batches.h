// The micro-batches of training steps, in order. While a device works on a step, a thread makes the host's part of the
// next step's batches; on a CPU, where it would take the step's time, each batch is made when it is needed.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "data/corpus/batches.h"
#include "distributed/process_group.h"
#include "train/batch.h"

namespace draftsmith::train {

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

}  // namespace draftsmith::train
