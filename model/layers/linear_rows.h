// Linear layers of few rows on devices other than the CPU: decoding steps and short verifications. Each call is one
// launch there, the operator draftsmith::linear_rows of LibTorch's dispatcher.
//
// Own kernels take fp32, bf16 and fp16; those of bf16 run on tensor cores. Their sums are of fp32, in an order that the
// number of inputs alone decides: a row's result is the same, to the last bit, alone and among others. So a token that
// is verified among others gets the logits of a step of one token. Kernels read 16 bytes at a time: rows of weights
// must be multiples of that. Elsewhere LibTorch's operators compute.
#pragma once

#include <cstdint>
#include <string>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// Most rows of a kernel of a type.
constexpr int64_t most_linear_rows(at::ScalarType type) {
  return type == at::kBFloat16 ? 32 : 16;
}

// Returns whether a kernel is faster than LibTorch's product of `rows` and a weight [out,in] (docs/results/gpu.md).
bool prefers_linear_rows(int64_t rows, const at::Tensor& weight);

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

// ---- Own kernels on CUDA devices
// model/layers/kernels/tensor_rows.cu for bf16, model/layers/kernels/linear_rows.cu for fp32 and fp16.

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

// Returns the kernel for `rows` of 1 to most_linear_rows(). `gated` outputs are those of two layers.
LinearRowsKernel linear_rows_kernel(at::ScalarType type, int64_t rows, int64_t outputs, bool normed, bool gated);

// Returns residual + f(layer(norm(x))) or, if `up` has weights, residual + f(layer(norm(x))) * up(norm(x)), for
// x [...,in] -> [...,out], in the dtype of x. An undefined residual adds nothing. Kernels round sums once, LibTorch's
// operators after every operation.
at::Tensor linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, PostOp then,
                       const at::Tensor& residual = {}, const LinearWeights& up = {});

}  // namespace draftsmith::model
