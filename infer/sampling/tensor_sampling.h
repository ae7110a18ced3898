// Sampling in tensor operations, for devices other than the CPU. The reference is the CPU's path, row_kernels.h.
#pragma once

#include "base/aten.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

// Returns the most likely tokens, as most_likely() does.
at::Tensor tensor_most_likely(const at::Tensor& logits);

// Warps fp32 or fp64 logits [...,V], as warp() does. temperature >= kGreedyBelow.
at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping);

// Draws from weights [B,V] with uniforms fp64 [B], as draw() does.
at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms);

}  // namespace draftsmith::infer
