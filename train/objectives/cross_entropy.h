// Cross entropy of the labels, -log q(y_t), with label smoothing as in Szegedy et al. 2016 (section 7).
#pragma once

#include "train/objectives/objective.h"

namespace draftsmith::train {

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options) : options_(options) {}
  Loss loss(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  CrossEntropyOptions options_;
};

// Head and cross entropy in one, a few positions at a time: the logits of all positions [P,V] never exist together,
// which for V = 250,000 would take a gigabyte for every thousand positions. The gradients are computed on the way.
//   hidden [P,D], weight [V,D], labels int64 [P] in [0,V); gives the sum over positions of
//   (1-e) * -log q(y) + e/V * sum over v of -log q(v), q = softmax(hidden weight^T), e = label_smoothing in [0,1).
// Sum in fp32, or fp64 for fp64 inputs. Differentiable with respect to hidden and weight, once.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing);

// Cross entropy without smoothing and the arg max at each position; no gradients, as little memory.
Prediction predict(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels);

}  // namespace draftsmith::train
