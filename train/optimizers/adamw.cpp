// AdamW: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, w -= lr (m^ / (sqrt(v^) + eps) + decay w), with bias-corrected m^,
// v^. All parameters that learn alike are updated by one fused kernel.
#include <tuple>

#include <ATen/core/grad_mode.h>

#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

namespace {

// Arguments of one fused call: parameters with the same rate and decay.
struct Lists {
  std::vector<at::Tensor> values, gradients, first_moments, second_moments;
};

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedParameter> parameters, const AdamWOptions& options);
  std::map<std::string, at::Tensor> state() const override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  AdamWOptions options_;
  std::vector<at::Tensor> first_moments_;   // like each parameter
  std::vector<at::Tensor> second_moments_;  // like each parameter
};

AdamW::AdamW(std::vector<OptimizedParameter> parameters, const AdamWOptions& options)
    : Optimizer(std::move(parameters)), options_(options) {
  const at::NoGradGuard no_grad;
  for (const OptimizedParameter& parameter : this->parameters()) {
    first_moments_.push_back(at::zeros_like(parameter.value));
    second_moments_.push_back(at::zeros_like(parameter.value));
  }
}

std::map<std::string, at::Tensor> AdamW::state() const {
  std::map<std::string, at::Tensor> tensors;
  for (size_t i = 0; i < first_moments_.size(); ++i) {
    tensors[parameters()[i].name + "/first_moment"] = first_moments_[i];
    tensors[parameters()[i].name + "/second_moment"] = second_moments_[i];
  }
  return tensors;
}

void AdamW::update(double lr, double gradient_scale) {
  std::map<std::pair<double, double>, Lists> alike;
  for (size_t i = 0; i < parameters().size(); ++i) {
    const OptimizedParameter& parameter = parameters()[i];
    const at::Tensor& gradient = parameter.value.grad();
    if (!gradient.defined() || parameter.lr_factor == 0) continue;
    Lists& lists = alike[{parameter.lr_factor, parameter.weight_decay}];
    lists.values.push_back(parameter.value);
    lists.gradients.push_back(gradient);
    lists.first_moments.push_back(first_moments_[i]);
    lists.second_moments.push_back(second_moments_[i]);
  }
  if (alike.empty()) return;
  const at::TensorOptions options = alike.begin()->second.values[0].options().requires_grad(false).dtype(at::kFloat);
  // The kernel takes the step number as a tensor for each parameter, and on a GPU from there; it only reads it.
  const at::Tensor step = at::scalar_tensor(static_cast<double>(steps()), options);
  // It divides gradients by grad_scale on the way, which saves a pass over them.
  const at::Tensor divisor = at::scalar_tensor(1 / gradient_scale, options);
  for (auto& [factors, lists] : alike) {
    const std::vector<at::Tensor> all_steps(lists.values.size(), step);
    at::_fused_adamw_(lists.values, lists.gradients, lists.first_moments, lists.second_moments, {}, all_steps,
                      lr * factors.first, options_.beta1, options_.beta2, factors.second, options_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, divisor);
  }
}

}  // namespace

Fields<AdamWOptions> AdamWOptions::fields() {
  return Fields<AdamWOptions>("AdamW")
      .add("beta1", &AdamWOptions::beta1, Range{0, 0.9999999}, "Decay of the gradients' running mean.")
      .add("beta2", &AdamWOptions::beta2, Range{0, 0.9999999}, "Decay of the squared gradients' running mean.")
      .add("epsilon", &AdamWOptions::epsilon, Above{0}, "Added to the denominator.");
}

OptimizerEntry adamw_optimizer() {
  return {.name = "adamw",
          .make = [](std::vector<OptimizedParameter> parameters, const OptimizerOptions& options)
              -> std::unique_ptr<Optimizer> { return std::make_unique<AdamW>(std::move(parameters), options.adamw); }};
}

}  // namespace draftsmith::train
