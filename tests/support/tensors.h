// Random tensors and comparisons of tensors.
#pragma once

#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>

#include "base/aten.h"

namespace draftsmith {

// Returns the largest absolute value; 0 for an empty tensor.
inline double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

// Returns the largest absolute difference of two tensors of one shape; 0 for empty ones.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return largest(a.to(at::kDouble) - b.to(at::kDouble));
}

// Returns standard normal numbers, the same ones for a seed.
inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed = 1, at::ScalarType type = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(type));
}

}  // namespace draftsmith
