// The CPU kernel behind base/random_tensors.h: dropout's random bits for 128 elements (16 Philox blocks) at a time, in
// loops that the compiler vectorises, with a copy for AVX-512.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/dropout_key.h"

namespace draftsmith::dropout_detail {

// Blocks that are drawn together, and the elements they decide: each 32-bit word decides two. In a group, element
// e = 64 half + 16 word + lane is decided by the low (half 0) or high 16 bits of word `word` of block 16 group + lane.
constexpr int64_t kLanes = 16;
constexpr int64_t kGroup = 8 * kLanes;

// 16-bit threshold: elements whose bits are below it are dropped.
uint32_t threshold_of(double probability);

// 1 / (1 - threshold / 2^16).
double scale_of(uint32_t threshold);

// out[i] = in[i] * scale, or 0 when element 128 first_group + i is dropped, for i in [0, count). With in = nullptr
// every in[i] is 1. For float, double, at::BFloat16 and at::Half.
template <class T>
void apply_dropout(const T* in, T* out, int64_t count, int64_t first_group, uint32_t threshold, const DropoutKey& key);

// The 16 bits that decide each of `elements` elements, in the same order, by tensor operations on any device: what the
// GPU uses in place of the kernel. int64 [elements].
at::Tensor decision_bits(int64_t elements, const DropoutKey& key, at::Device device);

}  // namespace draftsmith::dropout_detail
