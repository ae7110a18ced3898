// Linear layers of few rows on CUDA devices, by own kernels: model/layers/kernels/tensor_rows.cu for bf16 and
// linear_rows.cu for fp32 and fp16.
#pragma once

#include <optional>
#include <string>

#include "base/kernel_texts.h"
#include "model/layers/linear_weights.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// Types that have kernels.
constexpr at::ScalarType kLinearRowsTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

// Returns the source of the kernels of a type, which take seconds to compile.
KernelSource linear_rows_source(at::ScalarType type);

// Kernel for a number of rows and outputs, with its grid.
struct LinearRowsKernel {
  std::string name;
  int64_t blocks = 0;
  int64_t threads = 0;  // of a block
};

// Returns the kernel for `rows` of 1 to kMostLinearRows. `gated` outputs are those of two layers.
LinearRowsKernel linear_rows_kernel(at::ScalarType type, int64_t rows, int64_t outputs, bool normed, bool gated);

// Returns what linear_rows() does (model/layers/linear_rows.h), or gated_rows() if `up` has weights; nothing where no
// kernel takes the tensors: more rows than kMostLinearRows, other or mixed dtypes, rows that are no multiples of 16
// bytes, or a machine that cannot run kernels.
std::optional<at::Tensor> linear_rows_by_kernel(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                                const LinearWeights& up, PostOp then, const at::Tensor& residual);

}  // namespace draftsmith::model
