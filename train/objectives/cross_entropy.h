// Cross entropy of the labels, -log q(y_t), with label smoothing as in Szegedy et al. 2016 (section 7): the objective
// of plain training, its loss over a head (train/objectives/linear_loss.h), and an operator on logits.
#pragma once

#include <functional>
#include <memory>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

// ---- The operator draftsmith::cross_entropy, below autograd
// One launch on a GPU, by a kernel of our own (train/objectives/kernels/cross_entropy.cu). Training on a CPU does not
// call it: cross_entropy_loss() has sums of its own there, whose bits resumed runs rest on.

// Returns the source of the operator's kernels.
KernelSource cross_entropy_source();

// Returns the loss (1-e) -log q(y) + e/V sum_v -log q(v) of each position [C], e the smoothing. logits [C,V] are fp32
// or fp64 and contiguous, labels [C] int64. With `slope`, logits become its slope along them: q - e/V, less 1-e at y.
at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope);

// Replaces probabilities [C,V] by that slope, by LibTorch's operators.
void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing);

// Returns the losses [C] at a few positions with known log probabilities [C,V].
at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing);

// ---- Losses of predictions

// The labels of predictions that their head has rows for, and what their losses weigh.
struct Targets {
  HeadLabels labels;        // Q of them
  at::Tensor weights = {};  // [Q] as in PositionLoss
  int64_t sequences = 0;    // that have labels in the head
};

// Returns the loss for these targets, with smoothing e in [0,1) as above.
std::shared_ptr<PositionLoss> cross_entropy_loss(const Targets& targets, double label_smoothing);

// Makes the loss of predictions at their targets.
using MakeLoss = std::function<std::shared_ptr<PositionLoss>(const Predictions& predictions, const Targets& targets)>;

// Returns the sum of the losses of all predictions, each times its weight, computed together (linear_loss()); the
// counts are the first one's. Predictions of one model at the same labels (its exits) share their loss. `sequences`
// int64 [P]: the number of each label's sequence, from 0 on. If it is given, the loss of a sequence is the mean over
// its labels that the head has rows for, and the sum is over sequences. All predictions are at P labels.
Loss sum_of_losses(const TrainableOutput& output, const at::Tensor& sequences, const MakeLoss& make);

// Returns the cross entropy of all predictions. `sequences` as above.
Loss cross_entropy_of(const TrainableOutput& output, double label_smoothing, const at::Tensor& sequences = {});

// Returns the cross entropy without smoothing and the arg max at each position; no gradients, little memory.
Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels);

// ---- The objective

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options) : options_(options) {}
  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  CrossEntropyOptions options_;
};

}  // namespace draftsmith::train
