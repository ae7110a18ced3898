// Sums of gradients over the processes of a job, in buckets that begin to travel during the backward pass: a bucket's
// sum begins when its last gradient is there, as in torch's DistributedDataParallel (Li et al. 2020, section 3.2.3).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "distributed/buckets.h"
#include "distributed/world.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct GradientSumOptions {
  std::optional<at::ScalarType> type = {};  // in which gradients travel and add up; absent: their own
  bool overlap = false;                     // begin during the backward pass; the sums have the same bits without
};

// Numbers that are summed with the gradients.
struct StepCounts {
  std::vector<at::Tensor> losses;  // scalars (fp64), one for each micro-batch of the step; zero where another's
  int64_t labels = 0;
  int64_t divisor = 0;  // of the losses
  bool stop = false;    // asked to stop
};

class GradientSums {
 public:
  // Watches the backward passes of all parameters that require gradients now. World and model must outlive this.
  GradientSums(World& world, const TrainableModel& trainable, const GradientSumOptions& options);
  ~GradientSums();
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Announces this process's last backward pass of a step.
  void expect_last_pass() { last_pass_ = true; }
  // Replaces counts and gradients by their sums over all processes. A parameter without a gradient on any process stays
  // without one; one with a gradient on some gets it on all. Errors: as World::sum().
  void finish(StepCounts& counts);

 private:
  class Hook;
  // Ends a sum that was begun.
  using Completion = std::function<void()>;

  // Takes note that a gradient is complete.
  void arrived(size_t parameter);
  // Makes the buckets, of gradients in the order in which the leader's first backward pass gave them.
  void agree_on_buckets();
  void begin_next();
  void land();
  // Sums the counts, and the numbers of gradients that are present: 1 or 0 for each parameter. Returns those sums.
  std::vector<double> sum_counts(StepCounts& counts, const std::vector<double>& present);

  World& world_;
  GradientSumOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<size_t> order_;      // of the parameters in the buckets; at first, of those that have arrived
  std::vector<Bucket> buckets_;    // of parameters, whose gradients travel together; empty before the first step's end
  std::vector<size_t> bucket_of_;  // by parameter
  std::vector<size_t> outstanding_;  // gradients that a bucket waits for
  bool last_pass_ = false;
  size_t begun_ = 0;  // buckets
  std::deque<Completion> flights_;
};

}  // namespace draftsmith::train
