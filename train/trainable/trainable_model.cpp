#include "train/trainable/trainable_model.h"

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "model/files/safetensors.h"
#include "model/kinds/shared_encoder_pair.h"

namespace draftsmith::train {

std::shared_ptr<model::LanguageModel> TextWriters::alone() const {
  if (!shared_encoder) return target;
  return std::make_shared<model::SharedEncoderPair>(*shared_encoder, *target);
}

model::ModelInfo of_both(model::ModelInfo info, const model::ModelInfo& other) {
  const bool shorter = info.max_positions == 0 || other.max_positions < info.max_positions;
  if (other.max_positions > 0 && shorter) info.max_positions = other.max_positions;
  return info;
}

std::map<std::string, at::Tensor> with_prefix(const std::string& prefix,
                                              const std::map<std::string, at::Tensor>& parameters) {
  std::map<std::string, at::Tensor> renamed;
  for (const auto& [name, tensor] : parameters) renamed[prefix + name] = tensor;
  return renamed;
}

void require_gradients(const TrainableModel& trainable, bool on) {
  for (const auto& [name, parameter] : trainable.parameters()) {
    at::Tensor value = parameter;
    value.requires_grad_(on);
  }
}

void copy_parameters(const std::map<std::string, at::Tensor>& from, const std::map<std::string, at::Tensor>& into,
                     const std::string& where) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) {
    const auto found = from.find(name);
    if (found == from.end() || found->second.sizes() != tensor.sizes()) {
      throw UserError(Problem{.where = where,
                              .what = "the weights are of another architecture",
                              .expected = name + " " + model::shape_text(tensor.sizes()),
                              .found = found == from.end() ? "none" : model::shape_text(found->second.sizes())});
    }
    at::Tensor target = tensor;
    target.copy_(found->second);
  }
}

TrainableOutput PlainTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  return {
      .predictions = {{.model = &model_, .hidden = hidden_at_labels(model_, batch, dropout), .labels = batch.labels}}};
}

void PlainTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, model_, options);
}

void PlainTrainable::load(const std::filesystem::path& directory) {
  const auto stored = model::load_model(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  copy_parameters(stored->parameters(), model_.parameters(), directory.string());
}

std::unique_ptr<model::TransformerModel> packed_copy(const model::TransformerModel& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, tensor] : model.parameters()) parameters[name] = tensor.detach();
  auto copy = std::make_unique<model::TransformerModel>(model.config(), std::move(parameters));
  copy->pack();
  return copy;
}

}  // namespace draftsmith::train
