// A head and a loss of its logits in one, a few positions at a time: the logits of all positions [P,V] never exist
// together, which for V = 250,000 would take a gigabyte for every thousand positions. Gradients are computed on the
// way.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace draftsmith::train {

struct PositionRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// A loss that is a sum over positions, each of which looks at its own logits alone.
class LogitLoss {
 public:
  virtual ~LogitLoss() = default;
  // Called before the rows of a block of positions: what is cheaper to compute for all of them at once.
  virtual void begin_block(const PositionRange& /*block*/) {}
  // Sum of the losses of some positions of the block, a scalar. logits [C,V] in fp32 or fp64 are the callee's to
  // change; with `gradient` they must be d loss / d logits afterwards.
  virtual at::Tensor rows(at::Tensor& logits, const PositionRange& rows, bool gradient) = 0;
};

// Sum of `loss` over the logits hidden weight^T; hidden [P,D], weight [V,D]. In fp32, or fp64 for fp64 inputs.
// Differentiable with respect to hidden and weight, once. The loss is used up: nothing of it is needed backward.
at::Tensor linear_loss(const at::Tensor& hidden, const at::Tensor& weight, LogitLoss& loss);

}  // namespace draftsmith::train
