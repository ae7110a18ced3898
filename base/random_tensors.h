// Random tensors from counter-based streams (base/random.h): each element is a function of the key and its index, on
// any device, with any number of threads, after any other draws. (LibTorch's generator for CPUs is serial: bernoulli_
// alone took 23 % of a training step.)
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/dropout_groups.h"

namespace draftsmith {

namespace dropout_detail {

// Returns the 16-bit threshold: elements whose bits are below it are dropped.
uint32_t threshold_of(double probability);

// Writes out[i] = in[i] * scale for i in [0, count), or 0 where element 128 first_group + i is dropped. T is
// float, double, at::BFloat16 or at::Half.
template <class T>
void apply_dropout(const T* in, T* out, int64_t count, int64_t first_group, uint32_t threshold, const DropoutKey& key);

}  // namespace dropout_detail

// Returns a contiguous x * mask, where the mask is 0 for elements whose 16 bits are below `threshold`, else
// 1 / (1 - threshold / 2^16). x is of fp32, fp64, bf16 or fp16, with at most 2^35 elements. The mask is the same on
// every device. Records no gradient.
at::Tensor masked_by_key(const at::Tensor& x, uint32_t threshold, const DropoutKey& key);

// Returns x times a mask that is 0 with `probability`, else 1 / (1 - probability), with gradient; x itself if the
// probability is 0. The probability is first rounded to a multiple of 2^-16, so that the mask's mean stays 1. Keeps no
// mask: the backward pass draws it again. Throws std::logic_error unless 0 <= probability < 1 and the dtype is fp32,
// fp64, bf16 or fp16.
at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key);

// Returns normal numbers with mean 0 and the given standard deviation (Box-Muller in fp64, rounded to the dtype at the
// end) from the stream named `stream` ("init/decoder.0.wq"). Drawn on the CPU: the same on every device.
at::Tensor normal_tensor(at::IntArrayRef shape, double standard_deviation, uint64_t seed, std::string_view stream,
                         at::TensorOptions options);

}  // namespace draftsmith
