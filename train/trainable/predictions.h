// What objectives and validations read of a model's output: hidden states at a batch's labels, and the head that makes
// logits of them. Logits are not in here: at all positions together they would be [P,V].
#pragma once

#include <optional>
#include <vector>

#include "base/aten.h"
#include "model/kinds/exits.h"
#include "model/transformer/transformer_model.h"
#include "train/batch.h"

namespace draftsmith::train {

struct Predictions {
  // Whose head reads `hidden`, or whose ids the rows of `head` are. Without a head of their own, predictions of any
  // model, a packed one too, have logits(); head_of() is for models that have parameters().
  const model::TransformerModel* model = nullptr;
  at::Tensor hidden;             // [P,D] what the head reads, with a gradient where the model is trained
  at::Tensor labels;             // int64 [P] token ids
  model::HeadWeights head = {};  // what reads `hidden` where it is not the model's own head (an exit's)
  double weight = 1;             // of its loss in the sum of losses
  bool taught = true;            // false: not to be distilled (the primary that is trained beside its secondary)
  int64_t layer = 0;             // the layer that an exit reads, which validations report on its own; 0: no exit
};

// What a trainable makes of a batch.
struct TrainableOutput {
  std::vector<Predictions> predictions;  // at least one; validation measures the first, and exits
  // The predictions of a teacher that the trainable has run anyway (a Tandem primary), at the same labels as the first;
  // without gradients. Distilling from it costs no pass.
  std::optional<Predictions> teacher = {};
};

// Rows of forward()'s hidden states [B,T,D] at the labels, padding and prompts left out. [P,D]
at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch);

// The decoder output of a model that runs alone, at the labels. [P,D]
at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout);

// Labels that a head has rows for. With a pruned vocabulary those it lacks are left out: no loss can teach them.
struct HeadLabels {
  at::Tensor rows;  // int64 [Q]: the labels as rows of the head
  at::Tensor kept;  // int64 [Q]: which of the P they are, rising

  // Rows of hidden states [P,D] at these; the same tensor where there are all. [Q,D]
  at::Tensor of(const at::Tensor& hidden) const;
};

// Of labels int64 [P], P >= Q; the same tensor where the head has all ids.
HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& labels);

// What makes logits of predictions' hidden states: their own head, where they have one, else the model's.
model::HeadWeights head_of(const Predictions& predictions);

// Logits over all V ids of hidden states [C,D] of these predictions; -inf for ids that a pruned vocabulary lacks. [C,V]
at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden);

}  // namespace draftsmith::train
