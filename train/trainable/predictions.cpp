#include "train/trainable/predictions.h"

#include <limits>

#include "train/wide_product.h"

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

}  // namespace draftsmith::train
