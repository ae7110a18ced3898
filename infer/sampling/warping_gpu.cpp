#include "infer/sampling/warping_gpu.h"

#include <limits>

#include "base/device_kernels.h"
#include "infer/kernel_texts.h"

namespace draftsmith::infer {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 19;  // kIdBits of the kernel

bool fits_kernel(const at::Tensor& logits) {
  const bool narrow = logits.scalar_type() != at::kDouble;
  if (!narrow || logits.numel() == 0 || logits.size(-1) > kMostTokens) return false;
  return logits.numel() / logits.size(-1) <= std::numeric_limits<int32_t>::max();
}

}  // namespace

KernelSource warping_source() {
  return kernel_source(infer_kernel_texts(), "infer/sampling/kernels/warping.cu", {"--fmad=false"});
}

std::optional<at::Tensor> warp_by_kernel(const at::Tensor& logits, const Warping& warping) {
  static DeviceKernels kernels(warping_source());
  const void* kernel = fits_kernel(logits) ? kernels.find(logits.device(), "warp", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return std::nullopt;
  const at::Tensor scores = logits.contiguous();
  at::Tensor probabilities = at::empty(scores.sizes(), scores.options().dtype(at::kFloat));
  const int64_t vocabulary = scores.size(-1);
  kernels.launch(kernel, scores.device(), {static_cast<unsigned>(scores.numel() / vocabulary)}, {1024},
                 scores.const_data_ptr(), probabilities.mutable_data_ptr(), static_cast<int>(vocabulary),
                 static_cast<float>(1 / warping.temperature), static_cast<int>(std::min(warping.top_k, vocabulary)),
                 warping.top_p, static_cast<float>(warping.min_p));
  return probabilities;
}

}  // namespace draftsmith::infer
