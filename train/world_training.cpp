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
