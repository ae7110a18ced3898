// What training minimises. An objective runs the model on a micro-batch and returns its loss as (sum, count); the
// trainer divides once, over all micro-batches of a step, so that gradient accumulation equals the large batch.
//
// A new objective is a file in this folder and a line in objectives/registry.cpp.
#pragma once

#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "base/options.h"
#include "model/transformer_model.h"
#include "train/batch.h"

namespace draftsmith::train {

struct Loss {
  at::Tensor sum;     // scalar, fp32 (fp64 for an fp64 model); with a gradient unless gradients are off
  int64_t count = 0;  // what the sum is to be divided by: labels
};

// What a validation reads of a batch, beside the loss.
struct Prediction {
  Loss loss;            // plain cross entropy, without smoothing
  at::Tensor arg_maxs;  // int64 [P]: the model's own choice at each label
};

class Objective {
 public:
  virtual ~Objective() = default;
  // The loss of one micro-batch. Runs no backward.
  virtual Loss loss(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) = 0;
};

// Decoder output at the labels: rows of forward()'s hidden states, padding left out. [P,D]
at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout);

// Labels that the head has rows for. With a pruned vocabulary those it lacks are left out: no loss can teach them.
struct HeadLabels {
  at::Tensor hidden;  // [Q,D]
  at::Tensor rows;    // int64 [Q]: the labels as rows of the head
};

// Of the hidden states [P,D] at `labels` int64 [P], P >= Q; the same tensors where the head has all ids.
HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& hidden, const at::Tensor& labels);

// The weight the head multiplies with: head.weight, or the shared embedding where it is tied. [rows,D]
const at::Tensor& head_weight(const model::TransformerModel& model);

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  static Fields<CrossEntropyOptions> fields();
};

struct ObjectiveOptions {
  std::string name = "cross_entropy";
  CrossEntropyOptions cross_entropy = {};
  static Fields<ObjectiveOptions> fields();
};

// The objective that the options name. The list is in registry.cpp.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options);

}  // namespace draftsmith::train
