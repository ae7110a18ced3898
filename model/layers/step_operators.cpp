#include "model/layers/step_operators.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/device.h"
#include "base/device_kernels.h"
#include "base/device_tensors.h"
#include "model/cpu/row_operations.h"

namespace draftsmith::model {
namespace {

template <class T>
void rotate_in_place(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                     const std::vector<int64_t>& positions) {
  const int64_t half = table.cosine.size(1);
  T* data = x.mutable_data_ptr<T>();
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      const int64_t position = std::min(positions[static_cast<size_t>(b * x.size(1) + j)], table.positions() - 1);
      rotate_heads(data + b * x.stride(0) + j * x.stride(1), x.size(2) / head_width, head_width,
                   table.cosine.const_data_ptr<T>() + position * half, table.sine.const_data_ptr<T>() + position * half,
                   half);
    }
  }
}

}  // namespace

at::Tensor rotate_step(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                       const StepPositions& positions) {
  if (!x.is_cpu()) {
    rotate_at(x, table.cosine, table.sine, positions.on_device, head_width);
    return x;
  }
  const bool in_place = x.stride(2) == 1 && x.scalar_type() == table.cosine.scalar_type();
  if (in_place && x.scalar_type() == at::kFloat) {
    rotate_in_place<float>(x, head_width, table, positions.on_host);
    return x;
  }
  if (in_place && x.scalar_type() == at::kDouble) {
    rotate_in_place<double>(x, head_width, table, positions.on_host);
    return x;
  }
  const at::Tensor rows = at::tensor(positions.on_host, at::kLong).clamp_max(table.positions() - 1);
  const RotaryTable picked = rotary_rows(table, rows.view({x.size(0), x.size(1)}));
  return rotate_sequence(x, head_width, {picked.cosine.to(x.scalar_type()), picked.sine.to(x.scalar_type())});
}

void write_slots(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                 const StepLayout& layout) {
  // One head of one token is contiguous on both sides.
  const at::Tensor converted = from.to(cache.scalar_type());
  const at::Tensor tokens = converted.stride(-1) == 1 ? converted : converted.contiguous();
  const int64_t heads = cache.size(1);
  const int64_t slots = cache.size(2);
  const auto item = static_cast<int64_t>(cache.element_size());
  const int64_t head_bytes = cache.size(3) * item;
  auto* to = static_cast<std::byte*>(cache.mutable_data_ptr());
  const auto* source = static_cast<const std::byte*>(tokens.const_data_ptr());
  for (size_t b = 0; b < layout.base.size(); ++b) {
    const auto row = static_cast<int64_t>(b);
    for (int64_t j = 0; j < layout.new_tokens[b]; ++j) {
      const std::byte* token = source + (row * tokens.stride(0) + j * tokens.stride(1)) * item;
      std::byte* slot = to + (rows[b] * heads * slots + layout.base[b] + j) * head_bytes;
      for (int64_t head = 0; head < heads; ++head) {
        std::memcpy(slot + head * slots * head_bytes, token + head * head_bytes, static_cast<size_t>(head_bytes));
      }
    }
  }
}

namespace {

constexpr int64_t kThreads = 256;  // of every block, and the most numbers of a head

// A kernel that was found, and what launches it.
struct StepKernel {
  DeviceKernels* kernels = nullptr;
  const void* handle = nullptr;  // nullptr: there is none
};

StepKernel find_step_kernel(const char* name, const at::Tensor& of) {
  static DeviceKernels fp32(step_source(at::kFloat));
  static DeviceKernels bf16(step_source(at::kBFloat16));
  static DeviceKernels fp16(step_source(at::kHalf));
  const at::ScalarType type = of.scalar_type();
  DeviceKernels* kernels = type == at::kFloat      ? &fp32
                           : type == at::kBFloat16 ? &bf16
                           : type == at::kHalf     ? &fp16
                                                   : nullptr;
  return {kernels, kernels == nullptr ? nullptr : kernels->find(of.device(), name, type)};
}

bool same_type(const at::Tensor& a, const at::Tensor& b) {
  return !b.defined() || a.scalar_type() == b.scalar_type();
}

int narrow_int(int64_t value) {
  return static_cast<int>(value);
}

// Returns how many blocks have a thread for each of `count` numbers; nothing if a grid has not so many.
std::optional<Dim3> blocks_for(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  if (blocks > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return Dim3{static_cast<unsigned>(blocks)};
}

at::Tensor attend_densely(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                          const at::Tensor& row, const at::Tensor& prefix, const at::Tensor& own,
                          const at::Tensor& position, const at::Tensor& bias, double scale, int64_t used) {
  const CachedAttentionInput input{query, keys, values, bias, scale};
  return dense_attention(input, row, used, score_mask(input, {row, prefix, own, position}, used, /*all_see=*/false));
}

at::Tensor attend_on_gpu(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                         const at::Tensor& row, const at::Tensor& prefix, const at::Tensor& own,
                         const at::Tensor& position, const at::Tensor& bias, double scale, int64_t used) {
  const int64_t tokens = query.size(1), width = keys.size(3);
  const int64_t heads = query.size(2) / width;
  const int64_t blocks = query.size(0) * tokens * heads;
  const bool takes = query.numel() > 0 && same_type(query, keys) && same_type(query, values) &&
                     same_type(query, bias) && width <= kThreads && query.stride(2) == 1 && keys.is_contiguous() &&
                     values.is_contiguous() && blocks <= std::numeric_limits<int32_t>::max();
  const StepKernel kernel = takes ? find_step_kernel("attend", query) : StepKernel();
  if (kernel.handle == nullptr) {
    return attend_densely(query, keys, values, row, prefix, own, position, bias, scale, used);
  }
  const at::Tensor dense_prefix = prefix.contiguous(), dense_position = position.contiguous();
  const at::Tensor dense_bias = bias.defined() ? bias.contiguous() : bias;
  at::Tensor context = at::empty({query.size(0), tokens, query.size(2)}, query.options());
  kernel.kernels->launch(kernel.handle, query.device(), {static_cast<unsigned>(blocks)}, {kThreads},
                         query.const_data_ptr(), context.mutable_data_ptr(), keys.const_data_ptr(),
                         values.const_data_ptr(), row.const_data_ptr(), dense_prefix.const_data_ptr(),
                         data_or_null(own), dense_position.const_data_ptr(), data_or_null(dense_bias),
                         narrow_int(bias.defined() ? bias.size(1) : 0), narrow_int(tokens), narrow_int(heads),
                         narrow_int(keys.size(1)), narrow_int(keys.size(2)), narrow_int(width),
                         static_cast<long long>(query.stride(0)), static_cast<long long>(query.stride(1)), scale);
  return context;
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

void write_on_gpu(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                  const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  const auto grid = blocks_for(key.numel());
  const bool takes = grid && key.numel() > 0 && same_type(key_cache, key) && same_type(value_cache, value) &&
                     same_type(key_cache, value_cache) && key.stride(2) == 1 && value.stride(2) == 1 &&
                     key_cache.is_contiguous() && value_cache.is_contiguous() && slot.is_contiguous();
  const StepKernel kernel = takes ? find_step_kernel("write_slots", key) : StepKernel();
  if (kernel.handle == nullptr) return write_by_index(key_cache, value_cache, key, value, row, slot);
  kernel.kernels->launch(kernel.handle, key.device(), *grid, {kThreads}, key_cache.mutable_data_ptr(),
                         value_cache.mutable_data_ptr(), key.const_data_ptr(), value.const_data_ptr(),
                         row.const_data_ptr(), slot.const_data_ptr(), static_cast<long long>(key.numel()),
                         narrow_int(key.size(1)), narrow_int(key_cache.size(1)), narrow_int(key_cache.size(2)),
                         narrow_int(key_cache.size(3)), static_cast<long long>(key.stride(0)),
                         static_cast<long long>(key.stride(1)), static_cast<long long>(value.stride(0)),
                         static_cast<long long>(value.stride(1)));
}

void rotate_rows(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                 int64_t head_width) {
  x.copy_(rotate_sequence(x, head_width, rotary_rows({cosine, sine}, position)));
}

void rotate_on_gpu(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                   int64_t head_width) {
  const int64_t half = cosine.size(1);
  const int64_t heads = x.size(2) / head_width;
  const int64_t pairs = position.numel() * heads * half;
  const auto grid = blocks_for(pairs);
  const bool takes = grid && pairs > 0 && x.numel() > 0 && cosine.numel() > 0 && same_type(x, cosine) &&
                     same_type(x, sine) && x.stride(2) == 1 && cosine.is_contiguous() && sine.is_contiguous() &&
                     position.is_contiguous();
  const StepKernel kernel = takes ? find_step_kernel("rotate", x) : StepKernel();
  if (kernel.handle == nullptr) return rotate_rows(x, cosine, sine, position, head_width);
  kernel.kernels->launch(kernel.handle, x.device(), *grid, {kThreads}, x.mutable_data_ptr(), cosine.const_data_ptr(),
                         sine.const_data_ptr(), position.const_data_ptr(), static_cast<long long>(pairs),
                         narrow_int(x.size(1)), narrow_int(heads), narrow_int(head_width), narrow_int(half),
                         static_cast<long long>(x.stride(0)), static_cast<long long>(x.stride(1)));
}

DeviceKernels& places_kernels() {
  static DeviceKernels instance(step_places_source());
  return instance;
}

at::Tensor empty_places(const at::Tensor& base, int64_t tokens) {
  return at::empty({base.size(0) * (4 * tokens + 3)}, base.options());
}

at::Tensor places_on_cpu(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                         int64_t spare) {
  const auto bases = base.accessor<int64_t, 1>();
  const auto counts = new_tokens.accessor<int64_t, 1>();
  const auto of_rows = rows.accessor<int64_t, 2>();
  std::vector<PlacedRow> placed;
  for (int64_t b = 0; b < base.size(0); ++b) {
    placed.push_back({bases[b], counts[b], of_rows[0][b], of_rows[1][b], of_rows[2][b]});
  }
  at::Tensor packed = empty_places(base, tokens);
  write_places(placed, tokens, /*siblings=*/false, spare, packed.mutable_data_ptr<int64_t>());
  return packed;
}

at::Tensor places_on_gpu(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                         int64_t spare) {
  const void* kernel = places_kernels().find(base.device(), "step_places");
  TORCH_CHECK(kernel != nullptr, "the kernel step_places cannot run on ", base.device());
  at::Tensor packed = empty_places(base, tokens);
  const auto grid = blocks_for(base.size(0) * tokens);
  if (!grid || grid->x == 0) return packed;
  places_kernels().launch(kernel, base.device(), *grid, {kThreads}, base.contiguous().const_data_ptr(),
                          new_tokens.contiguous().const_data_ptr(), rows.contiguous().const_data_ptr(),
                          packed.mutable_data_ptr(), static_cast<long long>(base.size(0)),
                          static_cast<long long>(tokens), static_cast<long long>(spare));
  return packed;
}

}  // namespace

KernelSource step_source(at::ScalarType type) {
  return kernel_source_of_type(model_kernel_texts(), "model/layers/kernels/step.cu", "STEP", dtype_name(type));
}

KernelSource step_places_source() {
  return kernel_source(model_kernel_texts(), "model/layers/kernels/step_places.cu");
}

void write_places(std::span<const PlacedRow> rows, int64_t tokens, bool siblings, int64_t spare, int64_t* packed) {
  const int64_t batch = std::ssize(rows);
  const int64_t all = batch * tokens;
  int64_t* of_row = packed + 4 * all;
  for (const PlacedRow& row : rows) {
    for (int64_t j = 0; j < tokens; ++j, ++packed) {
      const int64_t position = row.base + (siblings ? 0 : std::min(j, row.new_tokens));
      packed[0] = j < row.new_tokens ? row.base + j : spare;
      packed[all] = position;
      packed[2 * all] = position + (siblings ? 0 : 1);
      packed[3 * all] = row.source_length;
    }
    of_row[0] = row.cache_row;
    of_row[batch] = row.source_row;
    of_row[2 * batch] = std::max<int64_t>(0, row.new_tokens - 1);
    ++of_row;
  }
}

at::Tensor step_places(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                       int64_t spare) {
  static const DeviceOperator op(
      "step_places(Tensor base, Tensor new_tokens, Tensor rows, int tokens, int spare) -> Tensor", &places_on_cpu,
      &places_on_gpu);
  return op(base, new_tokens, rows, tokens, spare);
}

bool has_step_places(at::Device device) {
  return !device.is_cuda() || places_kernels().find(device, "step_places") != nullptr;
}

at::Tensor attend(const CachedAttentionInput& input, const VisibleSlots& slots, int64_t used) {
  static const DeviceOperator op(
      "attend(Tensor query, Tensor keys, Tensor values, Tensor row, Tensor prefix, Tensor own, Tensor position, "
      "Tensor bias, float scale, int used) -> Tensor",
      &attend_densely, &attend_on_gpu);
  return op(input.query, input.keys, input.values, slots.row, slots.prefix, slots.own, slots.position, input.bias_table,
            input.scale, used);
}

void write_at(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
              const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  static const DeviceOperator op(
      "write_slots(Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor key, Tensor value, Tensor row, Tensor slot) "
      "-> ()",
      &write_by_index, &write_on_gpu);
  op(key_cache, value_cache, key, value, row, slot);
}

void rotate_at(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
               int64_t head_width) {
  static const DeviceOperator op(
      "rotate(Tensor(a!) x, Tensor cosine, Tensor sine, Tensor position, int head_width) -> ()", &rotate_rows,
      &rotate_on_gpu);
  op(x, cosine, sine, position, head_width);
}

}  // namespace draftsmith::model
