#include "train/predictions.h"

#include <limits>

namespace draftsmith::train {

at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch) {
  return hidden.reshape({-1, hidden.size(2)}).index_select(0, batch.positions);
}

at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  return at_labels(model.forward(input, dropout).hidden, batch);
}

HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& hidden, const at::Tensor& labels) {
  const model::VocabularyRows& vocabulary = model.vocabulary_rows();
  if (!vocabulary.pruned()) return {hidden, labels, at::arange(labels.size(0), labels.options())};
  const at::Tensor known = vocabulary.has(labels).nonzero().squeeze(1);  // [Q]
  return {hidden.index_select(0, known), vocabulary.of(labels.index_select(0, known)), known};
}

const at::Tensor& head_weight(const model::TransformerModel& model) {
  const auto& parameters = model.parameters();
  const auto own = parameters.find("head.weight");
  return own != parameters.end() ? own->second : parameters.at("embedding.weight");
}

const at::Tensor& head_weight(const Predictions& predictions) {
  return predictions.head.defined() ? predictions.head : head_weight(*predictions.model);
}

at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden) {
  if (!predictions.head.defined()) return predictions.model->head(hidden);
  return predictions.model->vocabulary_rows().spread(at::linear(hidden, predictions.head),
                                                     -std::numeric_limits<double>::infinity());
}

}  // namespace draftsmith::train
