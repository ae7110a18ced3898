// A block of a pass over whole sequences, kept or recomputed in the backward pass.
#pragma once

#include "model/transformer/stack.h"

namespace draftsmith::model {

// Returns block(x, pass, primary). If the pass recomputes and records gradients, it keeps only what the block reads:
// the backward pass applies the block again, with the same dropout masks. The block must live until then.
at::Tensor apply_block(const Block& block, const at::Tensor& x, const SequencePass& pass,
                       const at::Tensor& primary = {});

}  // namespace draftsmith::model
