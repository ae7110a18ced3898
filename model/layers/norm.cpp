#include "model/layers/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "model/layers/rms_norm.h"

namespace draftsmith::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// RMS norm with a hand-written gradient. Calls the CPU's kernels directly, without the dispatcher.
class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor x = input.contiguous();
    RmsNormed normed;
    if (x.is_cpu()) {
      normed = {at::empty_like(x), at::empty({x.numel() / x.size(-1)}, x.options())};
      rms_norm_on_cpu(x, weight, epsilon, normed.y, normed.inverse);
    } else {
      normed = rms_normed(x, weight, epsilon);
    }
    context->save_for_backward({x, weight, normed.inverse});
    return normed.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].contiguous();
    const auto compute = gradient.is_cpu() ? rms_norm_backward_on_cpu : rms_norm_gradients;
    const RmsNormGradients found = compute(gradient, saved[0], saved[1], saved[2]);
    return {found.x, found.weight, at::Tensor()};
  }
};

// RMS norm of half types on the CPU, by LibTorch's operators and their gradients.
at::Tensor rms_norm_by_operators(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const bool half = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::Tensor wide = half ? x.to(at::kFloat) : x;
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, true) + epsilon);
  return normed.to(weight.scalar_type()) * weight;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const bool on_cpu = x.is_cpu();
  if (on_cpu ? !rms_norm_on_cpu_takes(x, weight) : x.numel() == 0) return rms_norm_by_operators(x, weight, epsilon);
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad())) {
    return RmsNorm::apply(x, weight, epsilon);
  }
  if (!on_cpu) return rms_normed(x, weight, epsilon).y;
  const at::Tensor contiguous = x.contiguous();
  const at::Tensor y = at::empty_like(contiguous);
  rms_norm_on_cpu(contiguous, weight, epsilon, y, at::Tensor());
  return y;
}

}  // namespace

RowNorm NormLayer::row_norm() const {
  const auto takes = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
  };
  if (!takes(weight_) || (bias_.defined() && !takes(bias_))) return {};
  return {weight_.const_data_ptr<float>(), bias_.defined() ? bias_.const_data_ptr<float>() : nullptr, epsilon_,
          kind_ == Norm::kLayer};
}

at::Tensor NormLayer::operator()(const at::Tensor& x) const {
  if (kind_ == Norm::kRms) {
    return rms_norm(x, weight_, epsilon_);
  }
  return at::layer_norm(x.to(weight_.scalar_type()), {x.size(-1)}, weight_, bias_, epsilon_);
}

}  // namespace draftsmith::model
