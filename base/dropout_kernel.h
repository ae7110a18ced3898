// Dropout on the CPU, for base/random_tensors.h: draws random bits for 128 elements (16 Philox blocks) at a time, in
// loops that the compiler vectorises, with a copy for AVX-512.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/dropout_key.h"

namespace draftsmith::dropout_detail {

// Number of blocks that are drawn together, and number of elements that they decide: two for each 32-bit word. In a
// group, element e = 64 half + 16 word + lane is decided by the low (half 0) or high 16 bits of word `word` of block
// 16 group + lane.
constexpr int64_t kLanes = 16;
constexpr int64_t kGroup = 8 * kLanes;

// Returns the 16-bit threshold: elements whose bits are below it are dropped.
uint32_t threshold_of(double probability);

// Returns 1 / (1 - threshold / 2^16).
double scale_of(uint32_t threshold);

// Writes out[i] = in[i] * scale for i in [0, count), or 0 where element 128 first_group + i is dropped. T is
// float, double, at::BFloat16 or at::Half.
template <class T>
void apply_dropout(const T* in, T* out, int64_t count, int64_t first_group, uint32_t threshold, const DropoutKey& key);

// Returns the 16 bits that decide each element, as int64 [elements]. Uses tensor operations on any device; GPUs without
// kernels of our own use them in place of apply_dropout().
at::Tensor decision_bits(int64_t elements, const DropoutKey& key, at::Device device);

}  // namespace draftsmith::dropout_detail
