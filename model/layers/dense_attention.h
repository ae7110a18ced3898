// The cached keys that the queries of a step attend to, and attention of a step's few new tokens over K/V caches in
// tensor operations: any device, dtype and length of step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// The slots of a cache row that each query (b, j) sees: the slots [0, prefix), where prefix = first[b] + j if growing,
// otherwise first[b]; with own_slot also slot first[b] + j (a sibling sees the prefix and itself). Blocks of queries
// that see each other both ways grow together: prefix = first[b] + ⌊j/block⌋ block.
struct VisibleKeys {
  std::vector<int64_t> cache_row;  // [B] row of the caches
  std::vector<int64_t> first;      // [B]
  std::vector<int64_t>
      queries;  // [B] relevant queries of a row's L; the output of the others is finite but unspecified
  bool growing = false;
  bool own_slot = false;
  int64_t block = 1;  // of growing queries; 1: they see no later one

  int64_t prefix(size_t b, int64_t j) const { return first[b] + (growing ? j / block * block : 0); }
  // Returns the position of query (b, j) when slots are positions.
  int64_t position(size_t b, int64_t j) const { return growing ? first[b] + j - block : first[b]; }
  // Returns whether every query sees a key.
  bool all_see() const;
  // Returns one more than the highest slot that any relevant query sees.
  int64_t used(int64_t tokens) const;
};

// Visible slots as tensors on the caches' device, for computations in tensor operations.
struct VisibleSlots {
  at::Tensor row;       // int64 [B] row of the caches
  at::Tensor prefix;    // int64 [B,L] query (b, j) sees the slots [0,prefix)
  at::Tensor own;       // int64 [B,L] and this one; undefined: none
  at::Tensor position;  // int64 [B,L] position of the query when slots are positions
  int64_t block = 1;    // VisibleKeys::block
};

// Returns the slots that L queries of each row see, on the CPU.
VisibleSlots slots_of(const VisibleKeys& visible, int64_t tokens);

// One layer's cached attention.
struct CachedAttentionInput {
  at::Tensor query;       // [B,L,H*K], rows perhaps strided, heads contiguous
  at::Tensor keys;        // [R,kv,T,K], contiguous
  at::Tensor values;      // [R,kv,T,K], contiguous
  at::Tensor bias_table;  // [H,n], PositionBias::reversed_table with γ-1 later keys; undefined: none
  double scale = 1;       // factor on q·k
  double score_cap = 0;   // HeadShape's
  int64_t window = 0;     // likewise; slots are positions

  int64_t heads() const { return query.size(2) / keys.size(3); }
};

// Mask and bias of scores, the same for all layers of a step that share a table of bias.
struct ScoreMask {
  at::Tensor hidden;    // bool [B,1,L,T] keys that a query does not see
  at::Tensor bias;      // [B,H,L,T]; undefined: none
  at::Tensor has_keys;  // [B,1,L,1] 0 for a query that sees no key, else 1; undefined: all see some
};

// Returns the mask of the first `used` slots. `all_see`: every query sees a key.
ScoreMask score_mask(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used, bool all_see);

// Returns the context [B,L,H*K] over the first `used` slots; zeros for a query that sees no key.
at::Tensor dense_attention(const CachedAttentionInput& input, const at::Tensor& row, int64_t used,
                           const ScoreMask& mask);

}  // namespace draftsmith::model
