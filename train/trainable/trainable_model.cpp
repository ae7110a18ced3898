#include "train/trainable/trainable_model.h"

#include <limits>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "model/files/weight_files.h"
#include "model/models/shared_encoder.h"
#include "train/objectives/linear_loss.h"

namespace draftsmith::train {

model::ForwardInput input_of(const Batch& batch) {
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  return input;
}

at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch) {
  return hidden.reshape({-1, hidden.size(2)}).index_select(0, batch.positions);
}

at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) {
  return at_labels(model.forward(input_of(batch), dropout).hidden, batch);
}

at::Tensor HeadLabels::of(const at::Tensor& hidden) const {
  return kept.size(0) == hidden.size(0) ? hidden : hidden.index_select(0, kept);
}

HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& labels) {
  const model::VocabularyRows& vocabulary = model.vocabulary_rows();
  if (!vocabulary.pruned()) return {labels, at::arange(labels.size(0), labels.options())};
  const at::Tensor known = vocabulary.has(labels).nonzero().squeeze(1);  // [Q]
  return {vocabulary.of(labels.index_select(0, known)), known};
}

model::HeadWeights head_of(const Predictions& predictions) {
  return predictions.head.weight.defined() ? predictions.head
                                           : model::HeadWeights{model::head_weight(*predictions.model)};
}

at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden) {
  const model::TransformerModel& model = *predictions.model;
  model::HeadWeights own = predictions.head;
  if (!own.weight.defined()) {
    // A model without parameters, made for decoding only, computes its logits itself, in its own type.
    const bool half = model.info().dtype == at::kBFloat16 || model.info().dtype == at::kHalf;
    if (!half || model.decoding_only()) return model.head(hidden);
    own.weight = model::head_weight(model);
  }
  at::Tensor of_rows = wide_product(hidden, own.weight);  // [C,rows]
  if (own.up.defined()) of_rows = of_rows + wide_product(at::linear(hidden, own.down), own.up);
  return model.vocabulary_rows().spread(of_rows, -std::numeric_limits<double>::infinity());
}

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
