// What objectives and validations read of a model's output: the decoder's output at a batch's labels, and the head that
// makes logits of it. Logits are not in here: at all positions together they would be [P,V].
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "model/transformer_model.h"
#include "train/batch.h"

namespace draftsmith::train {

struct Predictions {
  // Whose head reads `hidden`. head_weight(*model) is its weight, where the model has parameters(); model->head() gives
  // logits over all V ids from any model, a packed one too.
  const model::TransformerModel* model = nullptr;
  at::Tensor hidden;     // [P,D] what the head reads, with a gradient where the model is trained
  at::Tensor labels;     // int64 [P] token ids
  at::Tensor head = {};  // [rows,D] the weight that reads `hidden` where it is not the model's own (an exit's head)
  double weight = 1;     // of its loss in the sum of losses
  bool taught = true;    // false: not to be distilled (the primary that is trained beside its secondary)
};

// What a trainee makes of a batch.
struct TraineeOutput {
  std::vector<Predictions> predictions;  // at least one; validation measures the first
  // The predictions of a teacher that the trainee has run anyway (a Tandem primary), at the same labels as the first;
  // without gradients. Distilling from it costs no pass.
  std::optional<Predictions> teacher = {};
};

// Rows of forward()'s hidden states [B,T,D] at the labels, padding and prompts left out. [P,D]
at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch);

// The decoder output of a model that runs alone, at the labels. [P,D]
at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout);

// Labels that the head has rows for. With a pruned vocabulary those it lacks are left out: no loss can teach them.
struct HeadLabels {
  at::Tensor hidden;  // [Q,D]
  at::Tensor rows;    // int64 [Q]: the labels as rows of the head
  at::Tensor kept;    // int64 [Q]: which of the P they are
};

// Of the hidden states [P,D] at `labels` int64 [P], P >= Q; the same tensors where the head has all ids.
HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& hidden, const at::Tensor& labels);

// The weight the head multiplies with: head.weight, or the shared embedding where it is tied. [rows,D]
const at::Tensor& head_weight(const model::TransformerModel& model);

}  // namespace draftsmith::train
