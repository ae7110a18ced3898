// The operators draftsmith::rms_norm and draftsmith::rms_norm_backward, below autograd: one launch forward and two
// backward on a GPU, from own kernels (base/device_kernels.h).
#pragma once

#include <tuple>

#include "model/cpu/rms_norm_cpu.h"

namespace draftsmith::model {

// RMS norm of rows, and what its gradient needs.
struct RmsNormed {
  at::Tensor y;        // [...,D], in the weight's dtype
  at::Tensor inverse;  // 1/sqrt(mean(x^2) + eps) of each row [rows]; fp32 for half types
};

// Returns round(x r) * weight, where round() takes numbers to the weight's dtype. x [...,D], weight [D] are on any
// device and of any floating dtypes. Half types are computed in fp32.
RmsNormed rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns the gradients of x and of the weight, in their dtypes. gradient [...,D] is of y.
RmsNormGradients rms_norm_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& inverse);

}  // namespace draftsmith::model
