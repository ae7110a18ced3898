// RMS norm on the CPU in fp32 and fp64: one pass over memory each way, where single operations take six.
#pragma once

#include "base/aten.h"

namespace draftsmith::model {

// Returns whether these functions take the tensors: non-empty ones of fp32 or fp64 on the CPU, of one dtype.
bool rms_norm_on_cpu_takes(const at::Tensor& x, const at::Tensor& weight);

// Writes y = w x r with r = 1/sqrt(mean(x^2) + eps); keeps r [rows] for the backward pass where `inverse` is defined.
// x and y [...,D] are contiguous.
void rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon, const at::Tensor& y,
                     const at::Tensor& inverse);

struct RmsNormGradients {
  at::Tensor x;       // [...,D]
  at::Tensor weight;  // [D]
};

// Returns dx = r (w g) - x r^3 mean(w g x) and dw, the sum of g x r over all rows. gradient and x [...,D] are
// contiguous.
RmsNormGradients rms_norm_backward_on_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& inverse);

}  // namespace draftsmith::model
