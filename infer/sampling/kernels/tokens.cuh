// Numbers that kernels of infer/ share with it.
#pragma once

#include "base/kernels/numbers.cuh"

namespace kernel {

constexpr Int64 kNoToken = -2;  // infer/sampling/row_kernels.h

}  // namespace kernel
