#include "train/world_training.h"

#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

namespace draftsmith::train {

namespace {

constexpr const char* kRestoring = "restoring the run";

std::vector<at::Tensor> values_of(const std::map<std::string, at::Tensor>& named) {
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : named) values.push_back(value);
  return values;
}

}  // namespace

void sum_step(World& world, const TrainableModel& trainable, StepCounts& counts,
              std::optional<at::ScalarType> reduce_type) {
  const auto& parameters = trainable.parameters();
  // Losses, then labels and stop, then 1 for each parameter with a gradient.
  std::vector<double> own{static_cast<double>(counts.labels), counts.stop ? 1.0 : 0.0};
  for (const auto& [name, parameter] : parameters) own.push_back(parameter.grad().defined() ? 1 : 0);
  const at::Tensor losses = at::stack(counts.losses);
  const at::Tensor all = at::cat({losses, at::tensor(own, at::kDouble).to(losses.device())});
  world.sum({all});

  const at::Tensor on_host = all.narrow(0, losses.numel(), all.numel() - losses.numel()).cpu();
  const double* sums = on_host.const_data_ptr<double>();
  for (size_t i = 0; i < counts.losses.size(); ++i) counts.losses[i] = all[static_cast<int64_t>(i)];
  counts.labels = static_cast<int64_t>(*sums++);
  counts.stop = *sums++ > 0;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, given] : parameters) {
    if (*sums++ == 0) continue;
    at::Tensor parameter = given;
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    gradients.push_back(parameter.grad());
  }
  world.sum(gradients, reduce_type);
}

void share_weights(World& world, TrainableModel& trainable) {
  world.broadcast(values_of(trainable.parameters()));
}

TrainingState share_start(World& world, const std::optional<StoredCheckpoint>& found, TrainableModel& trainable,
                          Optimizer& optimizer) {
  nlohmann::json own;
  if (found) own = {{"state", to_json(found->state)}, {"updates", found->optimizer_steps}};
  const auto told = nlohmann::json::parse(world.from_leader(kRestoring, own.dump()));
  share_weights(world, trainable);
  if (told.is_null()) return {};
  StoredCheckpoint stored = found.value_or(StoredCheckpoint{});
  stored.state = state_from_json(told.at("state"), kRestoring);
  stored.optimizer_steps = told.at("updates").get<int64_t>();
  load_optimizer(stored, optimizer, world);
  return stored.state;
}

}  // namespace draftsmith::train
