// Linear layers of few rows on CUDA devices, by own kernels (model/layers/kernels/linear_rows.cu).
#pragma once

#include <optional>

#include "base/kernel_texts.h"
#include "model/layers/linear_weights.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// Types that have kernels.
constexpr at::ScalarType kLinearRowsTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

// Returns the source of the kernels of a type, which take seconds to compile.
KernelSource linear_rows_source(at::ScalarType type);

// Numbers of rows that kernels are made for, ascending. Fewer rows take the next one.
constexpr int64_t kLinearRowsKernels[] = {1, 2, 4, 8, 16};

// Returns the number of blocks, of 64 threads, of a launch: `kernel_rows` is one of the numbers above, `layers` 2 for
// gated outputs.
int64_t linear_rows_blocks(int64_t kernel_rows, int64_t outputs, int64_t layers);

// Returns what linear_rows() does (model/layers/linear_rows.h), or gated_rows() if `up` has weights; nothing where no
// kernel takes the tensors: more rows than kMostLinearRows, other or mixed dtypes, rows that are no multiples of 16
// bytes, or a machine that cannot run kernels.
std::optional<at::Tensor> linear_rows_by_kernel(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                                const LinearWeights& up, PostOp then, const at::Tensor& residual);

}  // namespace draftsmith::model
