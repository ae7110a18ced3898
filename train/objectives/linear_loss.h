// A head and a loss of its logits in one, a few positions at a time: the logits of all positions [P,V] never exist
// together, which for V = 250,000 would take a gigabyte for every thousand positions. Gradients are computed on the
// way.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "model/kinds/exits.h"

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
  // Called after them: what begin_block() made may go.
  virtual void end_block() {}
};

// A loss of the logits that a head makes of some hidden states.
struct LinearLossTerm {
  at::Tensor hidden;  // [P,D]
  model::HeadWeights head;
  LogitLoss* loss = nullptr;  // used up: nothing of it is needed backward
  double factor = 1;
};

// Sum over terms, at least one, of factor times loss. In fp32, or fp64 for fp64 inputs. Differentiable with respect to
// hidden states and heads, once; a head that several terms share has one gradient [V,D], and under autocast one copy,
// so that memory does not grow with their number. Terms take turns at each block of positions.
at::Tensor linear_loss(const std::vector<LinearLossTerm>& terms);

}  // namespace draftsmith::train
