// Random tensors from counter-based streams (base/random.h): each element is a function of the key and its index, on
// any device, with any number of threads, after any other draws. (LibTorch's generator for CPUs is serial: bernoulli_
// alone took 23 % of a training step.)
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/dropout_key.h"

namespace draftsmith {

// Returns x times a mask that is 0 with `probability`, else 1 / (1 - probability), with gradient; x itself if the
// probability is 0. The probability is first rounded to a multiple of 2^-16, so that the mask's mean stays 1. Keeps no
// mask: the backward pass draws it again. Throws std::logic_error unless 0 <= probability < 1 and the dtype is fp32,
// fp64, bf16 or fp16.
at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key);

// Returns normal numbers with mean 0 and the given standard deviation (Box-Muller in fp64, rounded to the dtype at the
// end) from the stream named `stream` ("init/decoder.0.wq"). Drawn on the CPU, then moved: the same values on every
// device.
at::Tensor normal_tensor(at::IntArrayRef shape, double standard_deviation, uint64_t seed, std::string_view stream,
                         at::TensorOptions options);

}  // namespace draftsmith
