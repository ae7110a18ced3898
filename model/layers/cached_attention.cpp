#include "model/layers/cached_attention.h"

#include <algorithm>
#include <numeric>

#include "model/layers/attention_kernel.h"

namespace draftsmith::model {
namespace {

// Longer steps (prompts) are matrix products, which ATen does better than a loop over queries.
constexpr int64_t kLongestKernelStep = 32;

at::Tensor host_ids(const std::vector<int64_t>& values, at::IntArrayRef shape, at::Device device) {
  return at::tensor(values, at::kLong).view(shape).to(device, /*non_blocking=*/true);
}

bool identity(const std::vector<int64_t>& rows, int64_t count) {
  if (static_cast<int64_t>(rows.size()) != count) {
    return false;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (rows[static_cast<size_t>(i)] != i) {
      return false;
    }
  }
  return true;
}

at::Tensor kernel_attention(const CachedAttentionInput& input, const VisibleKeys& visible, const HeadShape& heads) {
  const int64_t rows = input.query.size(0);
  const int64_t tokens = input.query.size(1);
  const at::Tensor context = at::empty({rows, tokens, heads.inner()}, input.query.options());
  KernelShape shape;
  shape.tokens = tokens;
  shape.heads = heads.count;
  shape.key_value_heads = heads.key_values();
  shape.head_width = heads.width;
  shape.slots = input.keys.size(2);
  shape.query_row_stride = input.query.stride(0);
  shape.query_token_stride = input.query.stride(1);
  shape.bias_columns = input.bias_table.defined() ? input.bias_table.size(1) : 0;
  shape.scale = heads.scale;
  if (input.query.scalar_type() == at::kFloat) {
    attention_kernel<float>(
        shape, visible,
        {input.query.const_data_ptr<float>(), input.keys.const_data_ptr<float>(), input.values.const_data_ptr<float>(),
         shape.bias_columns > 0 ? input.bias_table.const_data_ptr<float>() : nullptr,
         context.mutable_data_ptr<float>()});
  } else {
    attention_kernel<double>(shape, visible,
                             {input.query.const_data_ptr<double>(), input.keys.const_data_ptr<double>(),
                              input.values.const_data_ptr<double>(),
                              shape.bias_columns > 0 ? input.bias_table.const_data_ptr<double>() : nullptr,
                              context.mutable_data_ptr<double>()});
  }
  return context;
}

at::Tensor dense_attention(const CachedAttentionInput& input, const VisibleKeys& visible, const HeadShape& heads,
                           DenseVisibility& dense) {
  const int64_t rows = input.query.size(0);
  const int64_t tokens = input.query.size(1);
  const int64_t shared = heads.key_values();
  const int64_t used = std::max<int64_t>(1, std::min(visible.used(tokens), input.keys.size(2)));
  const auto cached = [&](const at::Tensor& cache) {
    const at::Tensor slots = cache.size(2) >= used
                                 ? cache.narrow(2, 0, used)
                                 : at::zeros({cache.size(0), shared, used, heads.width}, cache.options());
    return identity(visible.cache_row, cache.size(0))
               ? slots
               : slots.index_select(0, host_ids(visible.cache_row, {rows}, cache.device()));
  };
  // Queries that share a key head stand below each other, so that keys and values are not repeated.
  const at::Tensor query = input.query.reshape({rows, tokens, heads.count, heads.width})
                               .transpose(1, 2)
                               .reshape({rows, shared, heads.count / shared * tokens, heads.width});
  const DenseVisibility::Tensors& mask = dense.get(visible, input, used);
  at::Tensor scores =
      query.matmul(cached(input.keys).transpose(2, 3)).view({rows, heads.count, tokens, used});  // [B,H,L,T]
  scores = (heads.scale == 1.0 ? scores : scores * heads.scale) + mask.additive;
  const at::Tensor weights = at::softmax(scores, -1).view({rows, shared, heads.count / shared * tokens, used});
  at::Tensor context = weights.matmul(cached(input.values)).view({rows, heads.count, tokens, heads.width});
  if (mask.has_keys.defined()) {
    context = context * mask.has_keys;
  }
  return context.transpose(1, 2).reshape({rows, tokens, heads.inner()});
}

}  // namespace

const DenseVisibility::Tensors& DenseVisibility::get(const VisibleKeys& visible, const CachedAttentionInput& input,
                                                     int64_t used) {
  if (tensors_.additive.defined()) {
    return tensors_;
  }
  const auto rows = static_cast<int64_t>(visible.first.size());
  const int64_t tokens = input.query.size(1);
  const at::Device device = input.query.device();
  std::vector<int64_t> prefix;
  std::vector<int64_t> own;
  std::vector<int64_t> position;
  bool all_see = true;
  for (size_t b = 0; b < visible.first.size(); ++b) {
    for (int64_t j = 0; j < tokens; ++j) {
      prefix.push_back(visible.prefix(b, j));
      own.push_back(visible.own_slot ? visible.first[b] + j : -1);
      position.push_back(visible.position(b, j));
      all_see = all_see && (prefix.back() > 0 || own.back() >= 0);
    }
  }
  const at::Tensor slot = at::arange(used, at::TensorOptions(at::kLong).device(device));  // [T]
  const at::Tensor is_own = slot.eq(host_ids(own, {rows, 1, tokens, 1}, device));         // [B,1,L,T]
  const at::Tensor seen = slot.lt(host_ids(prefix, {rows, 1, tokens, 1}, device)).logical_or_(is_own);
  tensors_.additive = at::zeros(seen.sizes(), input.query.options())
                          .masked_fill_(seen.logical_not(), excluded_score(input.query.scalar_type()));
  if (input.bias_table.defined()) {
    const int64_t columns = input.bias_table.size(1);
    const at::Tensor distance =
        (host_ids(position, {rows, tokens, 1}, device) - slot).masked_fill_(is_own.squeeze(1), 0);
    const at::Tensor column = (columns - 1 - distance).clamp_(0, columns - 1);                              // [B,L,T]
    const at::Tensor bias = input.bias_table.index_select(1, column.reshape({-1}));                         // [H,B*L*T]
    tensors_.additive = tensors_.additive + bias.view({bias.size(0), rows, tokens, used}).transpose(0, 1);  // [B,H,L,T]
  }
  if (!all_see) {
    tensors_.has_keys = seen.any(-1, true).to(input.query.scalar_type());  // [B,1,L,1]
  }
  return tensors_;
}

at::Tensor cached_attention(const CachedAttentionInput& input, const VisibleKeys& visible, const HeadShape& heads,
                            DenseVisibility& dense) {
  const auto type = input.query.scalar_type();
  const bool kernel = input.query.device().is_cpu() && (type == at::kFloat || type == at::kDouble) &&
                      input.query.size(1) <= kLongestKernelStep;
  return kernel ? kernel_attention(input, visible, heads) : dense_attention(input, visible, heads, dense);
}

}  // namespace draftsmith::model
