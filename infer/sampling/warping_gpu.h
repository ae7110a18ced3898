// Warping of logits on CUDA devices in one launch, by an own kernel (infer/sampling/kernels/warping.cu).
#pragma once

#include <optional>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

// Returns the source of the kernel.
KernelSource warping_source();

// Returns warp() (infer/sampling/sampling.h) of logits [...,V] at a temperature of at least kGreedyBelow, in fp32.
// Nothing where no kernel takes them: empty ones, other dtypes than fp32, bf16 and fp16, V above 2^19, or a machine
// that cannot run kernels.
std::optional<at::Tensor> warp_by_kernel(const at::Tensor& logits, const Warping& warping);

}  // namespace draftsmith::infer
