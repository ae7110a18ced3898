// RMS norm with its gradients: the operators draftsmith::rms_norm and draftsmith::rms_norm_backward. On CUDA devices
// own kernels compute them (model/layers/kernels/rms_norm.cu): one launch forward and two backward.
#pragma once

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "model/cpu/row_operations.h"

namespace draftsmith::model {

// Returns the source of the norm's kernels.
KernelSource rms_norm_source();

// Returns the number of threads of a block that works on rows of `width` numbers.
unsigned rms_norm_threads(int64_t width);

// Returns round(x r) * weight, where round() takes numbers to the weight's dtype. x [...,D], weight [D] are on any
// device and of any floating dtypes. Half types are computed in fp32. Records no gradient.
RmsNormed rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns rms_normed().y, with gradients of x and of the weight.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns the gradients of x and of the weight, in their dtypes. gradient [...,D] is of y.
RmsNormGradients rms_norm_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& inverse);

}  // namespace draftsmith::model
