#include "model/layers/step_gpu.h"

#include <limits>

#include "base/device.h"
#include "base/device_kernels.h"
#include "model/kernel_texts.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kThreads = 256;  // of every block, and the most numbers of a head

// Returns the kernels of a type; nullptr if there are none.
DeviceKernels* step_kernels_of(at::ScalarType type) {
  static DeviceKernels fp32(step_source(at::kFloat));
  static DeviceKernels bf16(step_source(at::kBFloat16));
  static DeviceKernels fp16(step_source(at::kHalf));
  return type == at::kFloat ? &fp32 : type == at::kBFloat16 ? &bf16 : type == at::kHalf ? &fp16 : nullptr;
}

// A kernel that was found, and what launches it.
struct StepKernel {
  DeviceKernels* kernels = nullptr;
  const void* handle = nullptr;  // nullptr: there is none
};

StepKernel find_step_kernel(const char* name, const at::Tensor& of) {
  DeviceKernels* kernels = step_kernels_of(of.scalar_type());
  return {kernels, kernels == nullptr ? nullptr : kernels->find(of.device(), name, of.scalar_type())};
}

bool same_type(const at::Tensor& a, const at::Tensor& b) {
  return !b.defined() || a.scalar_type() == b.scalar_type();
}

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
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

bool attend_takes(const CachedAttentionInput& input) {
  const at::Tensor& query = input.query;
  return query.numel() > 0 && same_type(query, input.keys) && same_type(query, input.values) &&
         same_type(query, input.bias_table) && input.keys.size(3) <= kThreads && query.stride(2) == 1 &&
         input.keys.is_contiguous() && input.values.is_contiguous() &&
         query.size(0) * query.size(1) * input.heads() <= std::numeric_limits<int32_t>::max();
}

bool write_takes(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                 const at::Tensor& value, const at::Tensor& slot) {
  return key.numel() > 0 && same_type(key_cache, key) && same_type(value_cache, value) &&
         same_type(key_cache, value_cache) && key.stride(2) == 1 && value.stride(2) == 1 && key_cache.is_contiguous() &&
         value_cache.is_contiguous() && slot.is_contiguous();
}

bool rotate_takes(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position) {
  return x.numel() > 0 && cosine.numel() > 0 && same_type(x, cosine) && same_type(x, sine) && x.stride(2) == 1 &&
         cosine.is_contiguous() && sine.is_contiguous() && position.is_contiguous();
}

}  // namespace

KernelSource step_source(at::ScalarType type) {
  return kernel_source_of_type(model_kernel_texts(), "model/layers/kernels/step.cu", "STEP", dtype_name(type));
}

std::optional<at::Tensor> attend_by_kernel(const CachedAttentionInput& input, const VisibleSlots& slots) {
  const at::Tensor& query = input.query;
  const int64_t tokens = query.size(1);
  const int64_t heads = input.heads();
  const int64_t width = input.keys.size(3);
  const int64_t blocks = query.size(0) * tokens * heads;
  const StepKernel kernel = attend_takes(input) ? find_step_kernel("attend", query) : StepKernel();
  if (kernel.handle == nullptr) return std::nullopt;
  const at::Tensor prefix = slots.prefix.contiguous();
  const at::Tensor position = slots.position.contiguous();
  const at::Tensor bias = input.bias_table.defined() ? input.bias_table.contiguous() : at::Tensor();
  at::Tensor context = at::empty({query.size(0), tokens, query.size(2)}, query.options());
  kernel.kernels->launch(kernel.handle, query.device(), {static_cast<unsigned>(blocks)}, {kThreads},
                         query.const_data_ptr(), context.mutable_data_ptr(), input.keys.const_data_ptr(),
                         input.values.const_data_ptr(), slots.row.const_data_ptr(), prefix.const_data_ptr(),
                         data_or_null(slots.own), position.const_data_ptr(), data_or_null(bias),
                         narrow_int(bias.defined() ? bias.size(1) : 0), narrow_int(tokens), narrow_int(heads),
                         narrow_int(input.keys.size(1)), narrow_int(input.keys.size(2)), narrow_int(width),
                         static_cast<long long>(query.stride(0)), static_cast<long long>(query.stride(1)), input.scale);
  return context;
}

bool write_by_kernel(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                     const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot) {
  const auto grid = blocks_for(key.numel());
  const bool taken = grid && write_takes(key_cache, value_cache, key, value, slot);
  const StepKernel kernel = taken ? find_step_kernel("write_slots", key) : StepKernel();
  if (kernel.handle == nullptr) return false;
  kernel.kernels->launch(kernel.handle, key.device(), *grid, {kThreads}, key_cache.mutable_data_ptr(),
                         value_cache.mutable_data_ptr(), key.const_data_ptr(), value.const_data_ptr(),
                         row.const_data_ptr(), slot.const_data_ptr(), static_cast<long long>(key.numel()),
                         narrow_int(key.size(1)), narrow_int(key_cache.size(1)), narrow_int(key_cache.size(2)),
                         narrow_int(key_cache.size(3)), static_cast<long long>(key.stride(0)),
                         static_cast<long long>(key.stride(1)), static_cast<long long>(value.stride(0)),
                         static_cast<long long>(value.stride(1)));
  return true;
}

bool rotate_by_kernel(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                      int64_t head_width) {
  const int64_t half = cosine.size(1);
  const int64_t heads = x.size(2) / head_width;
  const int64_t pairs = position.numel() * heads * half;
  const auto grid = blocks_for(pairs);
  const bool taken = grid && pairs > 0 && rotate_takes(x, cosine, sine, position);
  const StepKernel kernel = taken ? find_step_kernel("rotate", x) : StepKernel();
  if (kernel.handle == nullptr) return false;
  kernel.kernels->launch(kernel.handle, x.device(), *grid, {kThreads}, x.mutable_data_ptr(), cosine.const_data_ptr(),
                         sine.const_data_ptr(), position.const_data_ptr(), static_cast<long long>(pairs),
                         narrow_int(x.size(1)), narrow_int(heads), narrow_int(head_width), narrow_int(half),
                         static_cast<long long>(x.stride(0)), static_cast<long long>(x.stride(1)));
  return true;
}

}  // namespace draftsmith::model
