// Cross entropy of the labels, -log q(y_t), with label smoothing as in Szegedy et al. 2016 (section 7). It is an
// operator on logits and a loss; LossTerms sums the losses of a batch's predictions.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

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

// The losses of all predictions of a batch, computed together: a head or a teacher's block that several of them share
// is used once (train/objectives/linear_loss.h).
class LossTerms {
 public:
  // `sequences` int64 [P]: the number of each label's sequence, from 0 on. If it is given, the loss of a sequence is
  // the mean over its labels that the head has rows for, and the sum is over sequences. All predictions are at P
  // labels.
  explicit LossTerms(at::Tensor sequences = {}) : sequences_(std::move(sequences)) {}

  // Returns the labels of these predictions that their head has rows for; the same object for predictions of one model
  // at the same labels (its exits). It lives as long as this.
  const HeadLabels& labels(const Predictions& predictions) { return known(predictions).in_head; }
  // Returns the weights of the losses at these labels; undefined without sequences.
  const at::Tensor& weights(const Predictions& predictions) { return known(predictions).weights; }
  // Adds a loss over labels(predictions) with the weight `predictions.weight`.
  void add(const Predictions& predictions, std::unique_ptr<LogitLoss> loss);
  // Adds (1-e) CE + e uniform, see cross_entropy_loss().
  void add_cross_entropy(const Predictions& predictions, double label_smoothing);
  // Returns the sum of all added losses, at least one; the counts are the first one's. Call it once.
  Loss sum() const;

 private:
  struct Known {
    const model::TransformerModel* model;
    at::Tensor labels;
    HeadLabels in_head;
    at::Tensor weights = {};  // [Q]
    int64_t sequences = 0;    // that have labels in the head
  };
  const Known& known(const Predictions& predictions);

  at::Tensor sequences_;
  std::deque<Known> known_;
  std::vector<std::unique_ptr<LogitLoss>> losses_;
  std::vector<LinearLossTerm> terms_;
};

// Returns the loss for labels int64 [P] in [0,V). At position p with logits z it is (1-e) * -log q(y_p) + e/V * sum
// over v of -log q(v), q = softmax(z), e = label_smoothing in [0,1). `weights` as in PositionLoss.
std::unique_ptr<LogitLoss> cross_entropy_loss(at::Tensor labels, double label_smoothing, at::Tensor weights = {});

// Returns the losses [C] at a few positions with known log probabilities [C,V].
at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing);

// Returns the cross entropy without smoothing and the arg max at each position; no gradients, little memory.
Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels);

}  // namespace draftsmith::train
