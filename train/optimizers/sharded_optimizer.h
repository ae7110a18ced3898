// Optimizer state sharded over the processes of a group: stage 1 of ZeRO (Rajbhandari et al. 2020, section 5.1), as
// torch's ZeroRedundancyOptimizer does it. Whole parameters are divided. Each process keeps state for its own ones,
// updates these from the summed gradients, and gives them to the others. The numbers are those of an optimizer that is
// not sharded, to the bit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

// Returns the owner of each parameter: the largest first, each goes to the process that has the fewest numbers so far.
// Depends on sizes and order only.
std::vector<int64_t> deal_parameters(const std::vector<OptimizedParameter>& parameters, int64_t world_size);

class ShardedOptimizer : public Optimizer {
 public:
  // Takes valid options. Errors: as group_parameters().
  ShardedOptimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options,
                   ProcessGroup& world);

  bool is_sharded() const override { return true; }
  std::map<std::string, at::Tensor> state() const override { return own_->state(); }
  void set_steps(int64_t steps) override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  ProcessGroup& world_;
  std::vector<int64_t> owners_;     // of each parameter
  std::unique_ptr<Optimizer> own_;  // updates this process's parameters
};

}  // namespace draftsmith::train
