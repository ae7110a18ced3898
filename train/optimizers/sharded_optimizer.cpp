#include "train/optimizers/sharded_optimizer.h"

#include <algorithm>
#include <numeric>

namespace draftsmith::train {

std::vector<int64_t> deal_parameters(const std::vector<OptimizedParameter>& parameters, int64_t world_size) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return parameters[a].value.numel() > parameters[b].value.numel(); });
  std::vector<int64_t> numbers(static_cast<size_t>(world_size)), owners(parameters.size());
  for (const size_t i : order) {
    const auto least = std::min_element(numbers.begin(), numbers.end());
    *least += parameters[i].value.numel();
    owners[i] = least - numbers.begin();
  }
  return owners;
}

ShardedOptimizer::ShardedOptimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options,
                                   ProcessGroup& world)
    : Optimizer(group_parameters(parameters, options)),
      world_(world),
      owners_(deal_parameters(this->parameters(), world.size())) {
  std::vector<OptimizedParameter> own;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] == world.rank()) own.push_back(this->parameters()[i]);
  }
  own_ = make_optimizer(std::move(own), options);
}

void ShardedOptimizer::set_steps(int64_t steps) {
  Optimizer::set_steps(steps);
  own_->set_steps(steps);
}

void ShardedOptimizer::update(double lr, double gradient_scale) {
  own_->step(lr, gradient_scale);
  std::vector<std::vector<at::Tensor>> by_owner(static_cast<size_t>(world_.size()));
  for (size_t i = 0; i < owners_.size(); ++i) {
    const OptimizedParameter& parameter = parameters()[i];
    const bool changed = parameter.lr_factor != 0 && parameter.value.grad().defined();
    if (changed) by_owner[static_cast<size_t>(owners_[i])].push_back(parameter.value);
  }
  for (size_t owner = 0; owner < by_owner.size(); ++owner) {
    world_.broadcast(by_owner[owner], static_cast<int64_t>(owner));
  }
}

}  // namespace draftsmith::train
