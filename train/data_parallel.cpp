#include "train/data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

namespace draftsmith::train {

void share_weights(ProcessGroup& world, TrainableModel& trainable) {
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : trainable.parameters()) values.push_back(value);
  world.broadcast(values);
}

TrainingState share_start(ProcessGroup& world, const std::optional<StoredCheckpoint>& found, TrainableModel& trainable,
                          Optimizer& optimizer) {
  const std::string what = "restoring the run";
  nlohmann::json own;
  if (found) own = {{"state", to_json(found->state)}, {"updates", found->optimizer_steps}};
  const auto told = nlohmann::json::parse(world.from_leader(what, own.dump()));
  share_weights(world, trainable);
  if (told.is_null()) return {};
  StoredCheckpoint stored = found.value_or(StoredCheckpoint{});
  stored.state = state_from_json(told.at("state"), what);
  stored.optimizer_steps = told.at("updates").get<int64_t>();
  load_optimizer(stored, optimizer, world);
  return stored.state;
}

void sum_gradients(ProcessGroup& world, const TrainableModel& trainable, std::optional<at::ScalarType> type,
                   StepCounts& counts) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters;
  std::vector<double> own{static_cast<double>(counts.labels), static_cast<double>(counts.divisor),
                          counts.stop ? 1.0 : 0.0};
  const size_t first_parameter = own.size();  // from here on, 1 for each parameter with a gradient
  for (const auto& [name, parameter] : trainable.parameters()) {
    if (!parameter.requires_grad()) continue;
    parameters.push_back(parameter);
    own.push_back(parameter.grad().defined() ? 1 : 0);
  }
  const at::Tensor losses = at::stack(counts.losses);
  const at::Tensor all = at::cat({losses, at::tensor(own, at::kDouble).to(losses.device())});
  world.sum({all});
  for (size_t i = 0; i < counts.losses.size(); ++i) counts.losses[i] = all[static_cast<int64_t>(i)];
  const at::Tensor on_host = all.narrow(0, losses.numel(), all.numel() - losses.numel()).cpu();
  const double* sums = on_host.const_data_ptr<double>();
  counts.labels = static_cast<int64_t>(sums[0]);
  counts.divisor = static_cast<int64_t>(sums[1]);
  counts.stop = sums[2] > 0;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (sums[first_parameter + i] == 0) continue;
    if (!parameters[i].grad().defined()) parameters[i].mutable_grad() = at::zeros_like(parameters[i]);
    gradients.push_back(parameters[i].grad());
  }
  world.sum(gradients, type);
}

}  // namespace draftsmith::train
