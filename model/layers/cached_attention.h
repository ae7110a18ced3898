// Attention of a step's few new tokens over K/V caches: a kernel for fp32 and fp64 on CPUs, which reads ragged caches
// in place, and an equivalent of ATen operations for other devices and dtypes and for long steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "model/layers/attention.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {

// One layer's cached attention.
struct CachedAttentionInput {
  at::Tensor query;       // [B,L,H*K], rows perhaps strided, heads contiguous
  at::Tensor keys;        // [R,kv,T,K], contiguous
  at::Tensor values;      // [R,kv,T,K], contiguous
  at::Tensor bias_table;  // [H,n], PositionBias::reversed_table; undefined: none
};

// Mask and bias of scores as tensors, for the ATen path; made once for all layers of a step.
class DenseVisibility {
 public:
  // Additive [B,H or 1,L,T] and, where some query sees no key, a factor [B,1,L,1] that makes its attention zero.
  struct Tensors {
    at::Tensor additive;
    at::Tensor has_keys;
  };
  const Tensors& get(const VisibleKeys& visible, const CachedAttentionInput& input, int64_t used);

 private:
  Tensors tensors_;
};

// Returns the context [B,L,H*K]; zeros for a query that sees no key.
at::Tensor cached_attention(const CachedAttentionInput& input, const VisibleKeys& visible, const HeadShape& heads,
                            DenseVisibility& dense);

}  // namespace draftsmith::model
