#include "infer/sampling/most_likely_gpu.h"

#include <limits>

#include "base/device_kernels.h"
#include "infer/kernel_texts.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

KernelSource most_likely_source() {
  return kernel_source(infer_kernel_texts(), "infer/sampling/kernels/most_likely.cu");
}

std::optional<at::Tensor> most_likely_by_kernel(const at::Tensor& logits) {
  static DeviceKernels kernels(most_likely_source());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t vocabulary = logits.size(-1);
  const int64_t positions = logits.numel() == 0 ? 0 : logits.numel() / vocabulary;
  const bool taken = positions > 0 && positions <= kMost && vocabulary <= kMost;
  const void* kernel = taken ? kernels.find(logits.device(), "most_likely", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return std::nullopt;
  const at::Tensor scores = logits.contiguous();
  at::Tensor tokens =
      at::empty(logits.sizes().slice(0, static_cast<size_t>(logits.dim()) - 1), logits.options().dtype(at::kLong));
  kernels.launch(kernel, logits.device(), {static_cast<unsigned>(positions)}, {1024}, scores.const_data_ptr(),
                 tokens.mutable_data_ptr(), static_cast<int>(vocabulary), static_cast<long long>(kNoToken));
  return tokens;
}

}  // namespace draftsmith::infer
