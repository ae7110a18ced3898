// The output of trained models that objectives and validations read: hidden states at a batch's labels, and the head
// that makes logits of them. It holds no logits: at all positions together they would be [P,V].
#pragma once

#include <optional>
#include <vector>

#include "base/aten.h"
#include "model/kinds/exits.h"
#include "model/transformer/transformer_model.h"
#include "train/batch.h"

namespace draftsmith::train {

struct Predictions {
  // The model whose head reads `hidden`, or whose ids the rows of `head` are. Without `head`, predictions of any model,
  // a packed one too, have logits(); head_of() needs a model that has parameters().
  const model::TransformerModel* model = nullptr;
  at::Tensor hidden;             // [P,D] what the head reads, with a gradient where the model is trained
  at::Tensor labels;             // int64 [P] token ids
  model::HeadWeights head = {};  // an exit's own head, instead of the model's
  double weight = 1;             // of its loss in the sum of losses
  bool taught = true;            // false: not to be distilled (the primary that is trained beside its secondary)
  int64_t layer = 0;             // the layer that an exit reads, which validations report on its own; 0: no exit
};

// The output of trained models for a batch.
struct TrainableOutput {
  std::vector<Predictions> predictions;  // at least one; validation measures the first, and exits
  // The predictions of a teacher that ran anyway (a Tandem's primary), at the same labels as the first; without
  // gradients. Distilling from it costs no pass.
  std::optional<Predictions> teacher = {};
};

// Returns the rows of forward()'s hidden states [B,T,D] at the labels, padding and prompts left out. [P,D]
at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch);

// Returns the decoder output of a model that runs alone, at the labels. [P,D]
at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout);

// The labels that a head has rows for. A pruned vocabulary lacks some: no loss can teach them.
struct HeadLabels {
  at::Tensor rows;  // int64 [Q]: the labels as rows of the head
  at::Tensor kept;  // int64 [Q]: which of the P they are, rising

  // Returns the rows of hidden states [P,D] at these labels; the same tensor if all are kept. [Q,D]
  at::Tensor of(const at::Tensor& hidden) const;
};

// Returns the labels in the head, of labels int64 [P], P >= Q; the same tensor if the head has all ids.
HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& labels);

// Returns the head of predictions: their own, if they have one, otherwise the model's.
model::HeadWeights head_of(const Predictions& predictions);

// Returns logits over all V ids of hidden states [C,D] of these predictions; -inf for ids that a pruned vocabulary
// lacks. [C,V]
at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden);

}  // namespace draftsmith::train
