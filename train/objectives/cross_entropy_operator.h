// The operator draftsmith::cross_entropy, below autograd: one launch on a GPU, by a kernel of our own
// (train/objectives/kernels/cross_entropy.cu). Training on a CPU does not call it: cross_entropy_loss.h has sums of its
// own there, whose bits resumed runs rest on.
#pragma once

#include "base/aten.h"
#include "base/kernel_texts.h"

namespace draftsmith::train {

// Returns the source of the operator's kernels.
KernelSource cross_entropy_source();

// Returns the loss (1-e) -log q(y) + e/V sum_v -log q(v) of each position [C], e the smoothing. logits [C,V] are fp32
// or fp64 and contiguous, labels [C] int64. With `slope`, logits become its slope along them: q - e/V, less 1-e at y.
at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope);

// Replaces probabilities [C,V] by that slope, by LibTorch's operators.
void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing);

}  // namespace draftsmith::train
