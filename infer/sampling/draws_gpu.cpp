#include "infer/sampling/draws_gpu.h"

#include <limits>

#include "base/device_kernels.h"
#include "infer/kernel_texts.h"

namespace draftsmith::infer {

namespace {

constexpr unsigned kThreads = 1024;  // of every block

DeviceKernels& draw_kernels() {
  static DeviceKernels instance(draws_source());
  return instance;
}

// Returns the kernel for weights of [...,V], of which there are some; nullptr if there is none.
const void* find_draw_kernel(const char* name, const at::Tensor& weights) {
  const bool taken = weights.scalar_type() == at::kFloat && weights.numel() > 0 &&
                     weights.size(-1) <= std::numeric_limits<int32_t>::max() / 2 &&
                     weights.size(0) <= std::numeric_limits<int32_t>::max();
  return taken ? draw_kernels().find(weights.device(), name, at::kFloat) : nullptr;
}

}  // namespace

KernelSource draws_source() {
  return kernel_source(infer_kernel_texts(), "infer/sampling/kernels/draws.cu");
}

std::optional<at::Tensor> draw_by_kernel(const at::Tensor& weights, const at::Tensor& uniforms) {
  const void* kernel = find_draw_kernel("draw", weights);
  if (kernel == nullptr) return std::nullopt;
  const at::Tensor rows = weights.contiguous();
  const at::Tensor chances = uniforms.contiguous();
  at::Tensor tokens = at::empty({rows.size(0)}, rows.options().dtype(at::kLong));
  draw_kernels().launch(kernel, rows.device(), {static_cast<unsigned>(rows.size(0))}, {kThreads}, rows.const_data_ptr(),
                        chances.const_data_ptr(), tokens.mutable_data_ptr(), static_cast<int>(rows.size(1)));
  return tokens;
}

std::optional<Decided> reject_by_kernel(const DraftedTokens& drafted) {
  const bool same_type = drafted.p.scalar_type() == drafted.q.scalar_type();
  const void* kernel = same_type ? find_draw_kernel("reject", drafted.p) : nullptr;
  if (kernel == nullptr) return std::nullopt;
  const DraftedTokens in{drafted.p.contiguous(),      drafted.q.contiguous(),        drafted.tokens.contiguous(),
                         drafted.counts.contiguous(), drafted.r_accept.contiguous(), drafted.r_next.contiguous()};
  Decided decided{at::empty_like(in.counts), at::empty_like(in.counts)};
  draw_kernels().launch(kernel, in.p.device(), {static_cast<unsigned>(in.p.size(0))}, {kThreads}, in.p.const_data_ptr(),
                        in.q.const_data_ptr(), in.tokens.const_data_ptr(), in.counts.const_data_ptr(),
                        in.r_accept.const_data_ptr(), in.r_next.const_data_ptr(), decided.accepted.mutable_data_ptr(),
                        decided.next.mutable_data_ptr(), static_cast<int>(in.tokens.size(1)),
                        static_cast<int>(in.p.size(2)));
  return decided;
}

}  // namespace draftsmith::infer
