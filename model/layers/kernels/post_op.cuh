// Operations on the sums of linear layers.
#pragma once

namespace kernel {

// By the numbers of PostOp (model/layers/parameter_source.h).
enum PostOp { kNothing, kRelu, kGelu, kGeluTanh, kSilu };

__device__ inline float activated(float x, int then) {
  switch (then) {
    case kRelu:
      return x < 0.0f ? 0.0f : x;  // keeps NaN
    case kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * (x * x * x))));
    case kSilu:
      return x / (1.0f + expf(-x));
    default:
      return x;
  }
}

}  // namespace kernel
