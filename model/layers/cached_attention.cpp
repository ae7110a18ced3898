#include "model/layers/cached_attention.h"

#include <algorithm>

#include "model/cpu/query_attention.h"
#include "model/layers/step_operators.h"

namespace draftsmith::model {
namespace {

at::Tensor kernel_attention(const CachedAttentionInput& input, const VisibleKeys& visible) {
  const int64_t rows = input.query.size(0);
  const int64_t tokens = input.query.size(1);
  const at::Tensor context = at::empty({rows, tokens, input.query.size(2)}, input.query.options());
  KernelShape shape;
  shape.tokens = tokens;
  shape.heads = input.heads();
  shape.key_value_heads = input.keys.size(1);
  shape.head_width = input.keys.size(3);
  shape.slots = input.keys.size(2);
  shape.query_row_stride = input.query.stride(0);
  shape.query_token_stride = input.query.stride(1);
  shape.bias_columns = input.bias_table.defined() ? input.bias_table.size(1) : 0;
  shape.scale = input.scale;
  shape.score_cap = input.score_cap;
  shape.window = input.window;
  attention_kernel(
      shape, visible,
      {input.query.const_data_ptr<float>(), input.keys.const_data_ptr<float>(), input.values.const_data_ptr<float>(),
       shape.bias_columns > 0 ? input.bias_table.const_data_ptr<float>() : nullptr, context.mutable_data_ptr<float>()});
  return context;
}

}  // namespace

const VisibleSlots& StepVisibility::slots(int64_t tokens) {
  if (!slots_.row.defined()) slots_ = slots_of(keys_, tokens);
  return slots_;
}

int64_t StepVisibility::used(int64_t tokens, int64_t present) const {
  return recorded_ ? present : std::max<int64_t>(1, std::min(keys_.used(tokens), present));
}

const ScoreMask& StepVisibility::mask(const CachedAttentionInput& input, int64_t used) {
  const size_t kind = input.window > 0 ? 1 : 0;
  std::optional<ScoreMask>& mask = masks_[kind];
  if (!mask || !masked_tables_[kind].is_same(input.bias_table)) {
    mask = score_mask(input, slots(input.query.size(1)), used, !recorded_ && keys_.all_see());
    masked_tables_[kind] = input.bias_table;
  }
  return *mask;
}

bool StepVisibility::in_order(int64_t cache_rows) const {
  const auto& rows = keys_.cache_row;
  bool same = !recorded_ && std::ssize(rows) == cache_rows;
  for (size_t b = 0; b < rows.size() && same; ++b) same = rows[b] == static_cast<int64_t>(b);
  return same;
}

at::Tensor cached_attention(const CachedAttentionInput& input, StepVisibility& visible) {
  const int64_t tokens = input.query.size(1);
  const bool on_cpu = input.query.is_cpu();
  const bool few = tokens <= kLongestKernelStep;
  const bool has_kernel = input.query.scalar_type() == at::kFloat && (few || !visible.keys().own_slot);
  if (on_cpu && has_kernel) return kernel_attention(input, visible.keys());
  const int64_t used = visible.used(tokens, input.keys.size(2));
  const bool plain = input.score_cap == 0 && (input.window == 0 || input.keys.size(2) <= input.window);
  if (few && !on_cpu && visible.keys().block == 1 && plain) return attend(input, visible.slots(tokens), used);
  const at::Tensor row = visible.in_order(input.keys.size(0)) ? at::Tensor() : visible.slots(tokens).row;
  return dense_attention(input, row, used, visible.mask(input, used));
}

}  // namespace draftsmith::model
