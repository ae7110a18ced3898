#include "model/layers/dense_attention.h"

#include <algorithm>

#include "model/layers/attention.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

int64_t VisibleKeys::used(int64_t tokens) const {
  int64_t highest = 0;
  for (size_t b = 0; b < first.size(); ++b) {
    const int64_t last = std::min(queries[b], tokens) - 1;
    if (last >= 0) {
      highest = std::max(highest, own_slot ? first[b] + last + 1 : prefix(b, last));
    }
  }
  return highest;
}

bool VisibleKeys::all_see() const {
  return growing || own_slot || std::find(first.begin(), first.end(), 0) == first.end();
}

VisibleSlots slots_of(const VisibleKeys& visible, int64_t tokens) {
  const at::Tensor first = at::tensor(visible.first, at::kLong).unsqueeze(1);  // [B,1]
  const at::Tensor token = at::arange(tokens, at::kLong);                      // [L]
  const at::Tensor none = at::zeros_like(token);
  const at::Tensor block = token.floor_divide(visible.block) * visible.block;
  return {at::tensor(visible.cache_row, at::kLong), first + (visible.growing ? block : none),
          visible.own_slot ? first + token : at::Tensor(), first + (visible.growing ? token - visible.block : none),
          visible.block};
}

ScoreMask score_mask(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used, bool all_see) {
  const int64_t rows = slots.prefix.size(0);
  const int64_t tokens = slots.prefix.size(1);
  const at::Tensor slot = at::arange(used, slots.prefix.options());    // [T]
  at::Tensor seen = slot.lt(slots.prefix.view({rows, 1, tokens, 1}));  // [B,1,L,T]
  at::Tensor distance = slots.position.unsqueeze(-1) - slot;           // [B,L,T]
  if (slots.own.defined()) {
    const at::Tensor is_own = slot.eq(slots.own.view({rows, 1, tokens, 1}));
    seen = seen.logical_or(is_own);
    distance = distance.masked_fill(is_own.squeeze(1), 0);
  }
  if (input.window > 0) seen = seen.logical_and(distance.lt(input.window).unsqueeze(1));
  ScoreMask mask;
  if (!all_see) mask.has_keys = seen.any(-1, true).to(input.query.scalar_type());
  mask.hidden = seen.logical_not();
  if (input.bias_table.defined()) {
    const int64_t columns = input.bias_table.size(1);
    const at::Tensor column = (columns - slots.block - distance).clamp_(0, columns - 1);  // [B,L,T]
    const at::Tensor bias = input.bias_table.index_select(1, column.reshape({-1}));       // [H,B*L*T]
    mask.bias = bias.view({bias.size(0), rows, tokens, used}).transpose(0, 1);            // [B,H,L,T]
  }
  return mask;
}

at::Tensor dense_attention(const CachedAttentionInput& input, const at::Tensor& row, int64_t used,
                           const ScoreMask& mask) {
  const int64_t rows = input.query.size(0);
  const int64_t tokens = input.query.size(1);
  const int64_t heads = input.heads();
  const int64_t shared = input.keys.size(1);
  const int64_t width = input.keys.size(3);
  const auto cached = [&](const at::Tensor& cache) {
    const at::Tensor slots = cache.size(2) >= used ? cache.narrow(2, 0, used)
                                                   : at::zeros({cache.size(0), shared, used, width}, cache.options());
    return row.defined() ? slots.index_select(0, row) : slots;
  };
  // Queries that share a key head stand below each other, so that keys and values are not repeated.
  const at::Tensor query = input.query.reshape({rows, tokens, heads, width})
                               .transpose(1, 2)
                               .reshape({rows, shared, heads / shared * tokens, width});
  at::Tensor scores = query.matmul(cached(input.keys).transpose(2, 3)).view({rows, heads, tokens, used});  // [B,H,L,T]
  scores = soft_capped(input.scale == 1.0 ? scores : scores * input.scale, input.score_cap);
  if (mask.bias.defined()) scores = scores + mask.bias;
  // Drafts that overflow leave NaN at slots that earlier queries do not see: neither mask nor a weight of 0 hides it.
  const auto type = input.query.scalar_type();
  scores = scores.masked_fill(mask.hidden, excluded_score(type));
  at::Tensor values = cached(input.values);
  if (type == at::kHalf || type == at::kDouble) values = values.nan_to_num();  // infinities become the largest numbers
  const at::Tensor weights = at::softmax(scores, -1).view({rows, shared, heads / shared * tokens, used});
  at::Tensor context = weights.matmul(values).view({rows, heads, tokens, width});
  if (mask.has_keys.defined()) context = context * mask.has_keys;
  return context.transpose(1, 2).reshape({rows, tokens, heads * width});
}

}  // namespace draftsmith::model
