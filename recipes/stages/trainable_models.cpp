#include "recipes/stages/trainable_models.h"

#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {

namespace fs = std::filesystem;

std::unique_ptr<model::TransformerModel> ordinary_beginning(Beginning& beginning, const std::string& name,
                                                            at::Device device) {
  const bool fresh = beginning.from.empty();
  auto ordinary =
      fresh ? std::move(beginning.fresh) : model::load_model(beginning.from, {.device = device, .pack = false});
  ordinary->set_name(fresh ? name : beginning.from.string());
  return ordinary;
}

at::ScalarType frozen_type(const std::string& precision, at::Device device) {
  return precision == "bf16" && !device.is_cpu() ? at::kBFloat16 : at::kFloat;
}

std::unique_ptr<model::TransformerModel> load_frozen(const fs::path& directory, const ModelPlace& place) {
  // A teacher of half precision needs its plain head, whose logits are not rounded.
  auto frozen =
      model::load_model(directory, {.device = place.device, .dtype = place.frozen, .pack = place.frozen == at::kFloat});
  frozen->set_name(directory.string());
  return frozen;
}

bool is_same_model(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error) || model::model_hash(one) == model::model_hash(other);
}

}  // namespace draftsmith::recipes
