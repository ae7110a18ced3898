#include "model/layers/rms_norm_operator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "model/layers/rms_norm_gpu.h"

namespace draftsmith::model {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// Returns the tensor in the type in which half types are computed.
at::Tensor widened(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// Both directions by LibTorch's operators, on any device.
Pair forward_by_operators(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = widened(x);
  const at::Tensor inverse = at::rsqrt(wide.square().mean(-1, true) + epsilon);
  return {(wide * inverse).to(weight.scalar_type()) * weight, inverse.flatten()};
}

Pair backward_by_operators(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& inverse) {
  const at::Tensor wide = widened(x);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  const at::Tensor r = inverse.view(shape);
  const at::Tensor normed = wide * r;
  const at::Tensor scaled = (gradient * weight).to(wide.scalar_type());
  const at::Tensor dx = r * (scaled - normed * (scaled * normed).mean(-1, true));
  const at::Tensor rounded = widened(normed.to(weight.scalar_type()));
  const at::Tensor dw = (widened(gradient) * rounded).reshape({-1, x.size(-1)}).sum(0);
  return {dx.to(x.scalar_type()), dw.to(weight.scalar_type())};
}

Pair forward_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!rms_norm_on_cpu_takes(x, weight)) return forward_by_operators(x, weight, epsilon);
  const at::Tensor in = x.contiguous();
  const at::Tensor y = at::empty_like(in);
  const at::Tensor inverse = at::empty({in.numel() / in.size(-1)}, in.options());
  rms_norm_on_cpu(in, weight, epsilon, y, inverse);
  return {y, inverse};
}

Pair backward_on_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& inverse) {
  if (!rms_norm_on_cpu_takes(x, weight)) return backward_by_operators(gradient, x, weight, inverse);
  const RmsNormGradients gradients = rms_norm_backward_on_cpu(gradient.contiguous(), x.contiguous(), weight, inverse);
  return {gradients.x, gradients.weight};
}

Pair forward_on_gpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (const auto result = rms_norm_by_kernel(x, weight, epsilon)) return *result;
  return forward_by_operators(x, weight, epsilon);
}

Pair backward_on_gpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& inverse) {
  if (const auto result = rms_norm_backward_by_kernel(gradient, x, weight, inverse)) return *result;
  return backward_by_operators(gradient, x, weight, inverse);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> (Tensor, Tensor)");
  library.def("rms_norm_backward(Tensor gradient, Tensor x, Tensor weight, Tensor inverse) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("rms_norm", &forward_on_cpu);
  library.impl("rms_norm_backward", &backward_on_cpu);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("rms_norm", &forward_on_gpu);
  library.impl("rms_norm_backward", &backward_on_gpu);
}

}  // namespace

RmsNormed rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("draftsmith::rms_norm", "")
                                 .typed<Pair(const at::Tensor&, const at::Tensor&, double)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto [y, inverse] = handle.call(x, weight, epsilon);
  return {std::move(y), std::move(inverse)};
}

RmsNormGradients rms_norm_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& inverse) {
  static const auto handle =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("draftsmith::rms_norm_backward", "")
          .typed<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto [dx, dw] = handle.call(gradient, x, weight, inverse);
  return {std::move(dx), std::move(dw)};
}

}  // namespace draftsmith::model
