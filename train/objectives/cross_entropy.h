// Cross entropy of the labels, -log q(y_t), with label smoothing as in Szegedy et al. 2016 (section 7).
#pragma once

#include "train/objectives/objective.h"

namespace draftsmith::train {

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options) : options_(options) {}
  Loss loss(Trainee& trainee, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  CrossEntropyOptions options_;
};

// Of one of a trainee's predictions, over the labels that its head has rows for.
Loss cross_entropy_of(const Predictions& predictions, double label_smoothing);

// Head and cross entropy in one, without [P,V] (linear_loss.h).
//   hidden [P,D], weight [V,D], labels int64 [P] in [0,V); gives the sum over positions of
//   (1-e) * -log q(y) + e/V * sum over v of -log q(v), q = softmax(hidden weight^T), e = label_smoothing in [0,1).
// Sum in fp32, or fp64 for fp64 inputs. Differentiable with respect to hidden and weight, once.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing);

// The same for a few positions whose log probabilities [C,V] are known; and its gradient with respect to their logits,
// in place of the probabilities [C,V]: q - (1-e) onehot(y) - e/V.
at::Tensor cross_entropy_sum(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing);
void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing);

// Cross entropy without smoothing and the arg max at each position; no gradients, as little memory.
Prediction predict(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels);

}  // namespace draftsmith::train
