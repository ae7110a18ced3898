// Attention of a step's few new tokens over K/V caches in tensor operations: any device, dtype and length of step.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {

// One layer's cached attention.
struct CachedAttentionInput {
  at::Tensor query;       // [B,L,H*K], rows perhaps strided, heads contiguous
  at::Tensor keys;        // [R,kv,T,K], contiguous
  at::Tensor values;      // [R,kv,T,K], contiguous
  at::Tensor bias_table;  // [H,n], PositionBias::reversed_table with γ-1 later keys; undefined: none
  double scale = 1;       // factor on q·k

  int64_t heads() const { return query.size(2) / keys.size(3); }
};

// Mask and bias of scores, the same for all layers of a step.
struct ScoreMask {
  at::Tensor additive;  // [B,H or 1,L,T]
  at::Tensor has_keys;  // [B,1,L,1] 0 for a query that sees no key, else 1; undefined: all see some
};

// Returns the mask of the first `used` slots. `all_see`: every query sees a key.
ScoreMask score_mask(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used, bool all_see);

// Returns the context [B,L,H*K] over the first `used` slots; zeros for a query that sees no key.
at::Tensor dense_attention(const CachedAttentionInput& input, const at::Tensor& row, int64_t used,
                           const ScoreMask& mask);

}  // namespace draftsmith::model
