// Linear layers of few rows on CUDA devices, by own kernels (model/layers/kernels/linear_rows.cu).
#pragma once

#include <optional>

#include "base/kernel_texts.h"
#include "model/layers/linear_weights.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// Pairs of dtypes that have kernels: of the inputs, and of the weights. int8 is at::kChar.
struct LinearRowsPair {
  at::ScalarType x;
  at::ScalarType weight;
};
constexpr LinearRowsPair kLinearRowsPairs[] = {{at::kFloat, at::kFloat},   {at::kBFloat16, at::kBFloat16},
                                               {at::kHalf, at::kHalf},     {at::kFloat, at::kChar},
                                               {at::kBFloat16, at::kChar}, {at::kHalf, at::kChar}};

// Returns the source of the kernels of a pair, which take seconds to compile.
KernelSource linear_rows_source(const LinearRowsPair& pair);

// Numbers of rows that kernels are made for, ascending. Fewer rows take the next one.
constexpr int64_t kLinearRowsKernels[] = {1, 2, 4, 8, 16};

// Returns the number of blocks, of 64 threads, of a launch: `kernel_rows` is one of the numbers above, `layers` 2 for
// gated outputs.
int64_t linear_rows_blocks(int64_t kernel_rows, bool int8, int64_t outputs, int64_t layers);

// Whether kernels take contiguous x, and the layers and residual: few rows, of a pair of dtypes above, and multiples of
// 16 bytes. `up` may be undefined.
bool linear_rows_takes(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, const LinearWeights& up,
                       const at::Tensor& residual);

// Returns what linear_rows() does (model/layers/linear_rows.h), or gated_rows() if `up` has weights; nothing where no
// kernel takes the tensors: more rows, other or mixed dtypes, rows that are no multiples of 16 bytes, or a machine that
// cannot run kernels.
std::optional<at::Tensor> linear_rows_by_kernel(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                                const LinearWeights& up, PostOp then, const at::Tensor& residual);

}  // namespace draftsmith::model
