// Operators of a cached step on devices other than the CPU, each one launch there. LibTorch's dispatcher knows them as
// draftsmith::attend, ::write_slots and ::rotate.
#pragma once

#include <cstdint>

#include "model/layers/dense_attention.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {

// Returns the context [B,L,H*K] of a step over the first `used` slots; zeros for a query that sees no key.
at::Tensor attend(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used);

// Writes keys and values [B,L,kv*K] of a step to caches [R,kv,T,K]: token (b, j) to slot[b,j] of row[b].
void write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
              const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot);

// Rotates x [B,L,h*K], heads of `head_width` numbers, in place by the table's rows `position` int64 [B,L]
// (model/layers/rotary.h). cosine, sine [n,w/2].
void rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
               int64_t head_width);

}  // namespace draftsmith::model
