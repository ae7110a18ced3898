#include "train/objectives/cross_entropy_operator.h"

#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/device_kernels.h"
#include "train/kernel_texts.h"

namespace draftsmith::train {
namespace {

constexpr unsigned kThreads = 1024;

// By LibTorch's operators, on any device.
at::Tensor cross_entropy_by_operators(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
  at::Tensor losses = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  const auto vocabulary = static_cast<double>(logits.size(1));
  if (smoothing > 0) losses = losses * (1 - smoothing) - log_probs.sum(1) * (smoothing / vocabulary);
  if (!slope) return losses;
  at::exp_out(logits, log_probs);
  cross_entropy_gradient(logits, labels, smoothing);
  return losses;
}

at::Tensor cross_entropy_on_gpu(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static DeviceKernels kernels(cross_entropy_source());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool takes = logits.scalar_type() == at::kFloat && logits.numel() > 0 && logits.size(0) <= kMost &&
                     logits.size(1) <= kMost - kThreads && logits.is_contiguous() && labels.is_contiguous();
  const void* kernel = takes ? kernels.find(logits.device(), "cross_entropy", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return cross_entropy_by_operators(logits, labels, smoothing, slope);
  at::Tensor losses = at::empty({logits.size(0)}, logits.options());
  kernels.launch(kernel, logits.device(), {static_cast<unsigned>(logits.size(0))}, {kThreads},
                 logits.mutable_data_ptr(), labels.const_data_ptr(), losses.mutable_data_ptr(),
                 static_cast<int>(logits.size(1)), smoothing, slope ? 1 : 0);
  return losses;
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("cross_entropy(Tensor(a!) logits, Tensor labels, float smoothing, bool slope) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("cross_entropy", &cross_entropy_by_operators);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("cross_entropy", &cross_entropy_on_gpu);
}

}  // namespace

void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing) {
  if (smoothing > 0) probabilities.sub_(smoothing / static_cast<double>(probabilities.size(1)));
  probabilities.scatter_add_(1, labels.unsqueeze(1),
                             at::full({labels.size(0), 1}, smoothing - 1, probabilities.options()));
}

KernelSource cross_entropy_source() {
  return kernel_source(train_kernel_texts(), "train/objectives/kernels/cross_entropy.cu");
}

at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("draftsmith::cross_entropy", "")
                                 .typed<at::Tensor(at::Tensor&, const at::Tensor&, double, bool)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return handle.call(logits, labels, smoothing, slope);
}

}  // namespace draftsmith::train
