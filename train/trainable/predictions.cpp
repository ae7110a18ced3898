#include "train/trainable/predictions.h"

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
  const model::HeadWeights& own = predictions.head;
  if (!own.weight.defined()) return predictions.model->head(hidden);
  at::Tensor of_rows = at::linear(hidden, own.weight);  // [C,rows]
  if (own.up.defined()) of_rows = of_rows + at::linear(at::linear(hidden, own.down), own.up);
  return predictions.model->vocabulary_rows().spread(of_rows, -std::numeric_limits<double>::infinity());
}

}  // namespace draftsmith::train
