// Attention of a step's few new tokens over K/V caches: a kernel for fp32 and fp64 on CPUs, which reads ragged caches
// in place, and the same from ATen operations for other devices and dtypes and for long steps.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "model/attention.h"

namespace draftsmith::model {

// Which slots of which cache row each query (b, j) sees: the slots [0, prefix) with prefix = first[b] + j where
// growing, else first[b]; and with own_slot also slot first[b] + j (a sibling sees the prefix and itself).
struct VisibleKeys {
  std::vector<int64_t> cache_row;  // [B] row of the caches
  std::vector<int64_t> first;      // [B]
  std::vector<int64_t> queries;    // [B] how many of a row's L queries matter; the others' output is finite, no more
  bool growing = false;
  bool own_slot = false;

  int64_t prefix(size_t b, int64_t j) const { return first[b] + (growing ? j : 0); }
  // Position of query (b, j) when slots are positions.
  int64_t position(size_t b, int64_t j) const { return growing ? first[b] + j - 1 : first[b]; }
  // One more than the highest slot that a query that matters sees.
  int64_t used(int64_t tokens) const;
};

// One layer's cached attention.
struct CachedAttentionInput {
  at::Tensor query;       // [B,L,H*K], rows perhaps strided, heads contiguous
  at::Tensor keys;        // [R,kv,T,K], contiguous
  at::Tensor values;      // [R,kv,T,K], contiguous
  at::Tensor bias_table;  // [H,n], PositionBias::reversed_table; undefined: none
};

// Scores' mask and bias as tensors, for the ATen path; made once for all layers of a step.
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

// Context [B,L,H*K]; zeros for a query that sees no key.
at::Tensor cached_attention(const CachedAttentionInput& input, const VisibleKeys& visible, const HeadShape& heads,
                            DenseVisibility& dense);

}  // namespace draftsmith::model
