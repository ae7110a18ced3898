// What sampling.h does, in tensor operations: for devices other than the CPU, where infer/sampling/row_kernels.h does
// it.
#pragma once

#include "base/aten.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

// warp() of fp32 or fp64 logits [...,V]; temperature >= kGreedyBelow.
at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping);

// draw() of weights [B,V] with uniforms fp64 [B].
at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms);

}  // namespace draftsmith::infer
