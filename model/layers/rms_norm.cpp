#include "model/layers/rms_norm.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/device.h"
#include "base/device_kernels.h"

namespace draftsmith::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::tuple<at::Tensor, at::Tensor>;

// Parts that dw is summed in: enough blocks for every processor of a GPU, few enough for the second sum.
constexpr int64_t kMostParts = 512;

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

// Returns the tensor in the type in which half types are computed.
at::Tensor widened(const at::Tensor& tensor) {
  return is_half(tensor) ? tensor.to(at::kFloat) : tensor;
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

DeviceKernels& kernels() {
  static DeviceKernels instance(rms_norm_source());
  return instance;
}

bool takes(const at::Tensor& x, const at::Tensor& weight) {
  const bool pair = x.scalar_type() == weight.scalar_type() || (is_half(x) && weight.scalar_type() == at::kFloat) ||
                    (is_half(weight) && x.scalar_type() == at::kFloat);
  const int64_t rows = x.numel() == 0 ? 0 : x.numel() / x.size(-1);
  return pair && rows > 0 && rows <= std::numeric_limits<int32_t>::max() && weight.is_contiguous() &&
         weight.device() == x.device() && x.size(-1) <= std::numeric_limits<int32_t>::max() / 2;
}

// Returns the kernel for the dtypes, "rms_norm_bf16_fp32"; nullptr if there is none.
const void* find(const std::string& name, const at::Tensor& x, const at::Tensor& weight) {
  if (!takes(x, weight)) return nullptr;
  return kernels().find(x.device(), name + "_" + dtype_name(x.scalar_type()), weight.scalar_type());
}

Pair forward_on_gpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const void* kernel = find("rms_norm", x, weight);
  if (kernel == nullptr) return forward_by_operators(x, weight, epsilon);
  const at::Tensor in = x.contiguous();
  const int64_t width = in.size(-1);
  const int64_t rows = in.numel() / width;
  at::Tensor y = at::empty_like(in, in.options().dtype(weight.scalar_type()));
  at::Tensor inverse = at::empty({rows}, in.options().dtype(at::kFloat));
  kernels().launch(kernel, in.device(), {static_cast<unsigned>(rows)}, {rms_norm_threads(width)}, in.const_data_ptr(),
                   weight.const_data_ptr(), y.mutable_data_ptr(), inverse.mutable_data_ptr(), static_cast<int>(width),
                   epsilon);
  return {std::move(y), std::move(inverse)};
}

Pair backward_on_gpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& inverse) {
  const bool alike = gradient.scalar_type() == weight.scalar_type();
  const void* kernel = alike ? find("rms_norm_backward", x, weight) : nullptr;
  const void* sum = alike ? kernels().find(x.device(), "rms_norm_sum", weight.scalar_type()) : nullptr;
  if (kernel == nullptr || sum == nullptr) return backward_by_operators(gradient, x, weight, inverse);
  const at::Tensor in = x.contiguous();
  const at::Tensor of_y = gradient.contiguous();
  const int64_t width = in.size(-1);
  const auto rows = static_cast<long long>(in.numel() / width);
  const auto parts = static_cast<unsigned>(std::min<int64_t>(rows, kMostParts));
  at::Tensor dx = at::empty_like(in);
  at::Tensor dw = at::empty_like(weight);
  at::Tensor partial_dw = at::empty({parts, width}, in.options().dtype(at::kFloat));
  kernels().launch(kernel, in.device(), {parts}, {rms_norm_threads(width)}, of_y.const_data_ptr(), in.const_data_ptr(),
                   weight.const_data_ptr(), inverse.const_data_ptr(), dx.mutable_data_ptr(),
                   partial_dw.mutable_data_ptr(), rows, static_cast<int>(width));
  kernels().launch(sum, in.device(), {static_cast<unsigned>((width + 31) / 32)}, {32, 32}, partial_dw.const_data_ptr(),
                   dw.mutable_data_ptr(), static_cast<int>(parts), static_cast<int>(width));
  return {std::move(dx), std::move(dw)};
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor x = input.contiguous();
    const RmsNormed normed = rms_normed(x, weight, epsilon);
    context->save_for_backward({x, weight, normed.inverse});
    return normed.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const RmsNormGradients found = rms_norm_gradients(gradients[0].contiguous(), saved[0], saved[1], saved[2]);
    return {found.x, found.weight, at::Tensor()};
  }
};

}  // namespace

KernelSource rms_norm_source() {
  return kernel_source(model_kernel_texts(), "model/layers/kernels/rms_norm.cu", {"--fmad=false"});
}

unsigned rms_norm_threads(int64_t width) {
  // Four numbers a thread hide the latency of memory without idle warps in narrow rows.
  return static_cast<unsigned>(std::clamp<int64_t>((width + 127) / 128 * 32, 32, 1024));
}

// On CPUs own code leaves out the dispatcher, which takes 2 us, and its registration at the first call.
RmsNormed rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (x.is_cpu() && rms_norm_on_cpu_takes(x, weight)) return rms_norm_on_cpu(x, weight, epsilon);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  static const DeviceOperator op("rms_norm(Tensor x, Tensor weight, float epsilon) -> (Tensor, Tensor)",
                                 &forward_by_operators, &forward_on_gpu);
  auto [y, inverse] = op(x, weight, epsilon);
  return {std::move(y), std::move(inverse)};
}

RmsNormGradients rms_norm_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& inverse) {
  if (x.is_cpu() && rms_norm_on_cpu_takes(x, weight)) return rms_norm_backward_on_cpu(gradient, x, weight, inverse);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  static const DeviceOperator op(
      "rms_norm_backward(Tensor gradient, Tensor x, Tensor weight, Tensor inverse) -> (Tensor, Tensor)",
      &backward_by_operators, &backward_on_gpu);
  auto [dx, dw] = op(gradient, x, weight, inverse);
  return {std::move(dx), std::move(dw)};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  // LibTorch's operators have gradients of their own.
  if (x.numel() == 0 || (x.is_cpu() && !rms_norm_on_cpu_takes(x, weight))) {
    return std::get<0>(forward_by_operators(x, weight, epsilon));
  }
  const bool records = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  return records ? RmsNorm::apply(x, weight, epsilon) : rms_normed(x, weight, epsilon).y;
}

}  // namespace draftsmith::model
