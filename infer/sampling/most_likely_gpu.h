// The most likely token on CUDA devices, by an own kernel (infer/sampling/kernels/most_likely.cu).
#pragma once

#include <optional>

#include "base/aten.h"
#include "base/kernel_texts.h"

namespace draftsmith::infer {

// Returns the source of the kernel.
KernelSource most_likely_source();

// Returns most_likely() (infer/sampling/sampling.h) of logits [...,V]; nothing where no kernel takes them: empty ones,
// other dtypes than fp32, bf16 and fp16, or a machine that cannot run kernels.
std::optional<at::Tensor> most_likely_by_kernel(const at::Tensor& logits);

}  // namespace draftsmith::infer
