// Linear layers of few rows on devices other than the CPU: decoding steps and short verifications. Each call is one
// launch there; LibTorch's dispatcher knows them as draftsmith::linear_rows and ::gated_rows.
//
// Own kernels (model/layers/linear_rows_gpu.h) take fp32, bf16 and fp16; those of bf16 run on tensor cores.
// Their sums are of fp32, in an order that the number of inputs alone decides: a row's result is the same, to the last
// bit, alone and among others. So a token that is verified among others gets the logits of a step of one token.
// Kernels read 16 bytes at a time: rows of weights must be multiples of that. Elsewhere LibTorch's operators compute.
#pragma once

#include "model/layers/linear_weights.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// Returns residual + f(layer(norm(x))) for x [...,in] -> [...,out], in the dtype of x. An undefined residual adds
// nothing. Kernels round sums once, LibTorch's operators after every operation.
at::Tensor linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, PostOp then,
                       const at::Tensor& residual = {});

// Returns f(gate(norm(x))) * up(norm(x)), as linear_rows().
at::Tensor gated_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& gate, const LinearWeights& up,
                      PostOp then);

}  // namespace draftsmith::model
