// What the operators of model/layers/linear_rows.h read.
#pragma once

#include <cstdint>

#include "base/aten.h"

namespace draftsmith::model {

// Most rows of a kernel. For more, LibTorch's matrix products are taken to be faster (an estimate).
constexpr int64_t kMostLinearRows = 16;

// RMS norm that inputs pass first.
struct InputNorm {
  at::Tensor weight;  // [in] of the inputs' dtype; undefined: inputs are taken as they are
  double epsilon = 0;
};

// Numbers of a layer of `out` outputs.
struct LinearWeights {
  at::Tensor weight;  // [out,in] of the inputs' dtype
  at::Tensor bias;    // [out] of the inputs' dtype; undefined: none
};

}  // namespace draftsmith::model
