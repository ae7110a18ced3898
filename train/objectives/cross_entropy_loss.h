// Cross entropy of the labels, -log q(y_t), with label smoothing as in Szegedy et al. 2016 (section 7).
#pragma once

#include <memory>

#include "train/objectives/cross_entropy_operator.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

// Returns the loss for labels int64 [P] in [0,V). At position p with logits z it is (1-e) * -log q(y_p) + e/V * sum
// over v of -log q(v), q = softmax(z), e = label_smoothing in [0,1). `weights` as in PositionLoss.
std::unique_ptr<LogitLoss> cross_entropy_loss(at::Tensor labels, double label_smoothing, at::Tensor weights = {});

// Returns the losses [C] at a few positions with known log probabilities [C,V].
at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing);

// Returns the cross entropy without smoothing and the arg max at each position; no gradients, little memory.
Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels);

}  // namespace draftsmith::train
