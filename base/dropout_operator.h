// The operator draftsmith::dropout, below autograd: one launch on a GPU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/dropout_key.h"

namespace draftsmith {

// Returns a contiguous x * mask, where the mask is 0 for elements whose 16 bits are below `threshold`, else
// 1 / (1 - threshold / 2^16). x is of fp32, fp64, bf16 or fp16, with at most 2^35 elements. The mask is the same on
// every device. Records no gradient.
at::Tensor masked_by_key(const at::Tensor& x, uint32_t threshold, const DropoutKey& key);

}  // namespace draftsmith
