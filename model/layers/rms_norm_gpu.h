// RMS norm on CUDA devices by own kernels (model/layers/kernels/rms_norm.cu).
#pragma once

#include <optional>
#include <tuple>

#include "base/aten.h"
#include "base/kernel_texts.h"

namespace draftsmith::model {

// Returns the source of the norm's kernels.
KernelSource rms_norm_source();

// Both return nothing where no kernel takes the tensors: empty ones, other pairs of dtypes than rms_norm.cu has, or a
// machine that cannot run kernels. Shapes are those of model/layers/rms_norm_operator.h.

// Returns y and inverse.
std::optional<std::tuple<at::Tensor, at::Tensor>> rms_norm_by_kernel(const at::Tensor& x, const at::Tensor& weight,
                                                                     double epsilon);

// Returns the gradients of x and of the weight.
std::optional<std::tuple<at::Tensor, at::Tensor>> rms_norm_backward_by_kernel(const at::Tensor& gradient,
                                                                              const at::Tensor& x,
                                                                              const at::Tensor& weight,
                                                                              const at::Tensor& inverse);

// Returns the number of threads of a block that works on rows of `width` numbers.
unsigned rms_norm_threads(int64_t width);

}  // namespace draftsmith::model
