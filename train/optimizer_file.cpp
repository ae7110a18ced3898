#include "train/optimizer_file.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/files/safetensors_writer.h"

namespace draftsmith::train {

namespace {

// The tensors of all processes, and who has each.
struct WholeState {
  std::vector<model::TensorPlace> places;  // in the order of a file
  std::map<std::string, int64_t> owners;   // by name
};

// Returns names and shapes of this process's tensors as a text. Their types are those of the parameters.
std::string places_text(const std::map<std::string, at::Tensor>& own) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, tensor] : own) json[name] = tensor.sizes().vec();
  return json.dump();
}

// Finds what all processes have. All call it if the optimizer is sharded.
WholeState whole_state(const Optimizer& optimizer, ProcessGroup& world) {
  const std::string own = places_text(optimizer.state());
  const auto texts = optimizer.is_sharded() ? world.gather("an exchange of what each process has of the optimizer", own)
                                            : std::vector<std::string>{own};
  const at::ScalarType type = optimizer.parameters().front().value.scalar_type();
  WholeState whole;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto shapes = nlohmann::json::parse(texts[rank]);
    for (const auto& [name, shape] : shapes.items()) {
      whole.places.push_back({.name = name, .shape = shape.get<std::vector<int64_t>>(), .dtype = type});
      whole.owners[name] = static_cast<int64_t>(rank);
    }
  }
  whole.places = model::in_file_order(std::move(whole.places));
  return whole;
}

// Returns a new tensor where the optimizer's parameters are.
at::Tensor space_for(const model::TensorPlace& place, const Optimizer& optimizer) {
  return at::empty(place.shape, optimizer.parameters().front().value.options().requires_grad(false));
}

void require_fit(const model::SafetensorsFile& stored, const WholeState& whole) {
  Problems problems;
  for (const model::TensorPlace& place : whole.places) {
    const auto entry = stored.tensors().find(place.name);
    if (entry != stored.tensors().end() && entry->second.shape == place.shape) continue;
    problems.add({.where = stored.file().string(),
                  .what = "the optimizer's state does not fit this run",
                  .expected = place.name + " " + model::shape_text(place.shape),
                  .found = entry == stored.tensors().end() ? "none" : model::shape_text(entry->second.shape)});
  }
  problems.throw_if_any();
}

}  // namespace

void write_optimizer(const std::filesystem::path& file, const Optimizer& optimizer, ProcessGroup& world) {
  const at::NoGradGuard no_grad;
  const WholeState whole = whole_state(optimizer, world);
  const std::map<std::string, at::Tensor> own = optimizer.state();
  const auto fetch = [&](const model::TensorPlace& place) {
    const int64_t owner = whole.owners.at(place.name);
    const at::Tensor tensor = owner == world.rank() ? own.at(place.name) : space_for(place, optimizer);
    if (optimizer.is_sharded()) world.broadcast({tensor}, owner);
    return tensor;
  };
  if (world.leads()) {
    model::write_safetensors(file, whole.places, fetch);
  } else {
    for (const model::TensorPlace& place : whole.places) fetch(place);
  }
}

void read_optimizer(const std::filesystem::path& file, Optimizer& optimizer, ProcessGroup& world) {
  const at::NoGradGuard no_grad;
  const WholeState whole = whole_state(optimizer, world);
  std::map<std::string, at::Tensor> own = optimizer.state();
  std::optional<model::SafetensorsFile> stored;
  if (world.leads()) {
    stored.emplace(file);
    require_fit(*stored, whole);
  }
  for (const model::TensorPlace& place : whole.places) {
    const auto mine = own.find(place.name);
    at::Tensor tensor = mine == own.end() ? space_for(place, optimizer) : mine->second;
    if (stored) {
      tensor.copy_(stored->stored(place.name));
      stored->forget_pages();
    }
    world.broadcast({tensor});
  }
}

}  // namespace draftsmith::train
