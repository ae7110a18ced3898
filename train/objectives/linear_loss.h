// A head and a loss of its logits together, a few positions at a time: the logits of all positions [P,V] never exist
// together, which for V = 250,000 would take a gigabyte for every thousand positions. Gradients are computed on the
// way. Logits are in fp32 (fp64 for fp64 inputs) even where matrix products are in bf16: rounded to bf16, a logit of 8
// to 32 would change its probability by up to 6 %.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/aten.h"
#include "model/models/exits.h"

namespace draftsmith::train {

// ---- Products of half-precision matrices that are not rounded to half precision
// Logits must not be rounded before a softmax: a bf16 step is .06 to .125 where |z| is 8 to 32, which is that share of
// a probability.

// Returns rows W^T in at least fp32; half-precision W is multiplied by rows of its type. rows [C,n], W [V,n] -> [C,V].
at::Tensor wide_product(const at::Tensor& rows, const at::Tensor& matrix);

// Writes slope^T rows to `out` [V,n], fp32 and contiguous, or adds it: the gradient of W from that of rows W^T. slope
// [C,V] and rows [C,n] are bf16 on a CPU, of which multiplies_wide() is true.
void wide_gradient_into(at::Tensor& out, const at::Tensor& slope, const at::Tensor& rows, bool add);

// Returns whether matrices of this type are multiplied with a result in fp32 without copies of them: half precision on
// GPUs, and bf16 on CPUs with such instructions.
bool multiplies_wide(const at::Tensor& matrix);

// ---- A head and a loss together

struct PositionRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// A loss that is a sum over positions, each of which reads only its own logits and may be weighed.
class PositionLoss {
 public:
  // `weights` [P]: a factor of each position's loss; undefined: 1.
  explicit PositionLoss(at::Tensor weights = {}) : weights_(std::move(weights)) {}
  virtual ~PositionLoss() = default;

  // Called before rows() for a block of positions, by each term that shares the loss: for computations that are cheaper
  // for all of them together.
  virtual void begin_block(const PositionRange& /*block*/) {}
  // Returns the sum of the losses of some positions of the block, a scalar. rows() may change logits [C,V] (fp32 or
  // fp64); with `gradient` they are d loss / d logits afterwards.
  at::Tensor rows(at::Tensor& logits, const PositionRange& rows, bool gradient);

 protected:
  // Returns the losses [C] of positions, without weights; otherwise as rows().
  virtual at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool gradient) = 0;

 private:
  at::Tensor weights_;
};

// A loss of the logits of some hidden states.
struct LossTerm {
  at::Tensor hidden;  // [P,D]
  model::HeadWeights head;
  std::shared_ptr<PositionLoss> loss;  // the backward pass does not need it
  double factor = 1;
};

// Returns the sum over terms, at least one, of factor times loss, in fp32, or fp64 for fp64 inputs. Differentiable with
// respect to hidden states and heads (but for their biases, which are constants), once. A head that several terms share
// has one gradient [V,D], and under autocast one copy, so that memory does not grow with their number. Terms take turns
// at each block of positions.
at::Tensor linear_loss(const std::vector<LossTerm>& terms);

}  // namespace draftsmith::train
