// The operators of a cached step on CUDA devices, by own kernels (model/layers/kernels/step.cu).
#pragma once

#include <optional>

#include "base/kernel_texts.h"
#include "model/layers/dense_attention.h"
#include "model/layers/visible_keys.h"

namespace draftsmith::model {

// Returns the source of the kernels of fp32, bf16 or fp16.
KernelSource step_source(at::ScalarType type);

// These return nothing, or false, where no kernel takes the tensors: empty ones, mixed dtypes and fp64, heads of more
// than 256 numbers, or a machine that cannot run kernels. Shapes are those of model/layers/step_operators.h.

std::optional<at::Tensor> attend_by_kernel(const CachedAttentionInput& input, const VisibleSlots& slots);

bool write_by_kernel(const at::Tensor& key_cache, const at::Tensor& value_cache, const at::Tensor& key,
                     const at::Tensor& value, const at::Tensor& row, const at::Tensor& slot);

bool rotate_by_kernel(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const at::Tensor& position,
                      int64_t head_width);

}  // namespace draftsmith::model
