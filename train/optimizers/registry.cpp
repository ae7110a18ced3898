// The explicit list of optimizers.
#include "base/registry.h"

#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

namespace {

const Registry<OptimizerEntry>& optimizers() {
  static const Registry<OptimizerEntry> kOptimizers("optimizer", {adamw_optimizer(), adafactor_optimizer()});
  return kOptimizers;
}

}  // namespace

Fields<OptimizerOptions> OptimizerOptions::fields() {
  return Fields<OptimizerOptions>("optimizer")
      .add("name", &OptimizerOptions::name, Choices(optimizers().names()), "Which optimizer.")
      .add("lr", &OptimizerOptions::lr, Range{0, 100}, "Peak learning rate; the schedule's factor is applied to it.")
      .add("weight_decay", &OptimizerOptions::weight_decay, Range{0, 100},
           "Decoupled weight decay: each step subtracts lr * weight_decay of every weight.")
      .add("adamw", &OptimizerOptions::adamw, "Options of adamw.")
      .add("adafactor", &OptimizerOptions::adafactor, "Options of adafactor.")
      .add("groups", &OptimizerOptions::groups, "Parameters with their own learning rates.");
}

std::unique_ptr<Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                          const OptimizerOptions& options) {
  Problems problems;
  validate_options(options, "optimizer", problems);
  problems.throw_if_any();
  return make_optimizer(group_parameters(parameters, options), options);
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizedParameter> parameters, const OptimizerOptions& options) {
  return optimizers().at(options.name).make(std::move(parameters), options);
}

}  // namespace draftsmith::train
