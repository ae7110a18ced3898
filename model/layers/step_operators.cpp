#include "model/layers/step_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "model/layers/rotary.h"
#include "model/layers/step_gpu.h"

namespace draftsmith::model {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor attend_densely(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                          const at::Tensor& row, const at::Tensor& prefix, const MaybeTensor& own,
                          const at::Tensor& position, const MaybeTensor& bias, double scale, int64_t used) {
  const CachedAttentionInput input{query, keys, values, bias.value_or(at::Tensor()), scale};
  const VisibleSlots slots{row, prefix, own.value_or(at::Tensor()), position};
  return dense_attention(input, row, used, score_mask(input, slots, used, /*all_see=*/false));
}

void write_by_index(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                    const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  const auto write = [&](const at::Tensor& cache, const at::Tensor& from) {
    // Indexing dimensions 0 and 2 of [R,kv,T,K]: each (row, slot) takes [kv,K].
    cache.transpose(1, 2).index_put_(
        {row.unsqueeze(1), slot},
        from.reshape({from.size(0), from.size(1), cache.size(1), cache.size(3)}).to(cache.scalar_type()));
  };
  write(key_cache, key);
  write(value_cache, value);
}

void rotate_rows(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                 int64_t head_width) {
  x.copy_(rotate_sequence(x, head_width, rotary_rows({cosine, sine}, position)));
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "attend(Tensor query, Tensor keys, Tensor values, Tensor row, Tensor prefix, Tensor? own, Tensor position, "
      "Tensor? bias, float scale, int used) -> Tensor");
  library.def(
      "write_slots(Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor key, Tensor value, Tensor row, Tensor slot) "
      "-> ()");
  library.def("rotate(Tensor(a!) x, Tensor cosine, Tensor sine, Tensor position, int head_width) -> ()");
}

at::Tensor attend_on_gpu(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                         const at::Tensor& row, const at::Tensor& prefix, const MaybeTensor& own,
                         const at::Tensor& position, const MaybeTensor& bias, double scale, int64_t used) {
  const auto context = attend_by_kernel({query, keys, values, bias.value_or(at::Tensor()), scale},
                                        {row, prefix, own.value_or(at::Tensor()), position});
  return context ? *context : attend_densely(query, keys, values, row, prefix, own, position, bias, scale, used);
}

void write_on_gpu(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                  const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  if (write_by_kernel(key_cache, value_cache, key, value, row, slot)) return;
  write_by_index(key_cache, value_cache, key, value, row, slot);
}

void rotate_on_gpu(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                   int64_t head_width) {
  if (rotate_by_kernel(x, cosine, sine, position, head_width)) return;
  rotate_rows(x, cosine, sine, position, head_width);
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("attend", &attend_densely);
  library.impl("write_slots", &write_by_index);
  library.impl("rotate", &rotate_rows);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("attend", &attend_on_gpu);
  library.impl("write_slots", &write_on_gpu);
  library.impl("rotate", &rotate_on_gpu);
}

template <class Signature>
c10::TypedOperatorHandle<Signature> operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

MaybeTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

}  // namespace

at::Tensor attend(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used) {
  static const auto op = operator_named<decltype(attend_densely)>("draftsmith::attend");
  return op.call(input.query, input.keys, input.values, slots.row, slots.prefix, if_defined(slots.own), slots.position,
                 if_defined(input.bias_table), input.scale, used);
}

void write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
              const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  static const auto op = operator_named<decltype(write_by_index)>("draftsmith::write_slots");
  op.call(key_cache, value_cache, key, value, row, slot);
}

void rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
               int64_t head_width) {
  static const auto op = operator_named<decltype(rotate_rows)>("draftsmith::rotate");
  op.call(x, cosine, sine, position, head_width);
}

}  // namespace draftsmith::model
