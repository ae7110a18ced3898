// Adafactor (Shazeer and Stern 2018, Algorithms 4 and 5) as transformers.optimization.Adafactor computes it with
// relative_step off: second moments of matrices kept as a row and a column, updates clipped by their root mean square.
//
//   b2 = 1 - t^decay_rate;  s = g^2 + eps1
//   matrices: row = b2 row + (1-b2) mean_columns(s), column likewise; u = g / sqrt(row column / mean(row))
//   vectors:  v = b2 v + (1-b2) s; u = g / sqrt(v)
//   u /= max(1, rms(u)/clip_threshold);  u *= lr * (scale_parameter ? max(eps2, rms(w)) : 1)
//   with beta1: m = beta1 m + (1-beta1) u, u = m;   w -= decay * lr' * w, then w -= u
#include <cmath>

#include <ATen/core/grad_mode.h>

#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

namespace {

// Root mean square, as a scalar tensor: reading it on the host would make a GPU wait for every parameter.
at::Tensor rms(const at::Tensor& tensor) {
  return tensor.norm() / std::sqrt(static_cast<double>(tensor.numel()));
}

class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimizedParameter> parameters, const AdafactorOptions& options);
  std::map<std::string, at::Tensor> state() const override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  // State of one parameter. Unused tensors are undefined.
  struct Memory {
    at::Tensor row;            // [...,rows]
    at::Tensor column;         // [...,columns]
    at::Tensor second_moment;  // like the parameter; vectors only
    at::Tensor first_moment;   // like the parameter; with beta1
  };
  // Updates the estimate of the second moment and returns g / sqrt(estimate).
  at::Tensor normalized(const at::Tensor& gradient, Memory& memory) const;

  AdafactorOptions options_;
  std::vector<Memory> memories_;  // one a parameter
};

Adafactor::Adafactor(std::vector<OptimizedParameter> parameters, const AdafactorOptions& options)
    : Optimizer(std::move(parameters)), options_(options) {
  const at::NoGradGuard no_grad;
  for (const OptimizedParameter& parameter : this->parameters()) {
    const at::Tensor& value = parameter.value;
    Memory memory;
    if (value.dim() >= 2) {
      memory.row = at::zeros_like(value.select(-1, 0), at::MemoryFormat::Contiguous);
      memory.column = at::zeros_like(value.select(-2, 0), at::MemoryFormat::Contiguous);
    } else {
      memory.second_moment = at::zeros_like(value);
    }
    if (options_.beta1) memory.first_moment = at::zeros_like(value);
    memories_.push_back(std::move(memory));
  }
}

std::map<std::string, at::Tensor> Adafactor::state() const {
  std::map<std::string, at::Tensor> tensors;
  for (size_t i = 0; i < memories_.size(); ++i) {
    const std::string& name = parameters()[i].name;
    const Memory& memory = memories_[i];
    if (memory.row.defined()) tensors[name + "/row"] = memory.row;
    if (memory.column.defined()) tensors[name + "/column"] = memory.column;
    if (memory.second_moment.defined()) tensors[name + "/second_moment"] = memory.second_moment;
    if (memory.first_moment.defined()) tensors[name + "/first_moment"] = memory.first_moment;
  }
  return tensors;
}

at::Tensor Adafactor::normalized(const at::Tensor& gradient, Memory& memory) const {
  const double beta2 = 1 - std::pow(static_cast<double>(steps()), options_.decay_rate);
  const at::Tensor square = gradient.square().add_(options_.epsilon1);
  if (memory.second_moment.defined()) {
    memory.second_moment.mul_(beta2).add_(square, 1 - beta2);
    return memory.second_moment.rsqrt().mul_(gradient);
  }
  memory.row.mul_(beta2).add_(square.mean(-1), 1 - beta2);
  memory.column.mul_(beta2).add_(square.mean(-2), 1 - beta2);
  const at::Tensor row_factor = (memory.row / memory.row.mean(-1, true)).rsqrt_().unsqueeze(-1);
  const at::Tensor column_factor = memory.column.unsqueeze(-2).rsqrt();
  return at::mul(row_factor, column_factor).mul_(gradient);
}

void Adafactor::update(double lr, double gradient_scale) {
  for (size_t i = 0; i < parameters().size(); ++i) {
    const OptimizedParameter& parameter = parameters()[i];
    at::Tensor value = parameter.value;
    at::Tensor gradient = value.grad();
    if (!gradient.defined() || parameter.lr_factor == 0) continue;
    gradient.mul_(gradient_scale);
    at::Tensor update = normalized(gradient, memories_[i]);
    update.div_((rms(update) / options_.clip_threshold).clamp_min_(1.0));
    at::Tensor rate = at::scalar_tensor(lr * parameter.lr_factor, value.options());
    if (options_.scale_parameter) rate = rate * rms(value).clamp_min_(options_.epsilon2);
    update.mul_(rate);
    if (options_.beta1) {
      update = memories_[i].first_moment.mul_(*options_.beta1).add_(update, 1 - *options_.beta1);
    }
    if (parameter.weight_decay != 0) value.sub_(value * rate, parameter.weight_decay);
    value.sub_(update);
  }
}

}  // namespace

Fields<AdafactorOptions> AdafactorOptions::fields() {
  return Fields<AdafactorOptions>("Adafactor")
      .add("scale_parameter", &AdafactorOptions::scale_parameter,
           "Multiply each parameter's rate by its root mean square, at least epsilon2. On for T5 from random weights "
           "(lr 1e-2), off for fine-tuning.")
      .add("clip_threshold", &AdafactorOptions::clip_threshold, Above{0},
           "Updates are scaled down to this root mean square.")
      .add("decay_rate", &AdafactorOptions::decay_rate, Range{-1, 0},
           "Exponent of the second moments' decay: beta2 = 1 - step^decay_rate.")
      .add("epsilon1", &AdafactorOptions::epsilon1, Above{0}, "Added to squared gradients.")
      .add("epsilon2", &AdafactorOptions::epsilon2, Above{0}, "Least root mean square of a parameter.")
      .add("beta1", &AdafactorOptions::beta1, Range{0, 0.9999999}, "Decay of the updates' running mean; absent: none.");
}

OptimizerEntry adafactor_optimizer() {
  return {.name = "adafactor",
          .make = [](std::vector<OptimizedParameter> parameters,
                     const OptimizerOptions& options) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Adafactor>(std::move(parameters), options.adafactor);
          }};
}

}  // namespace draftsmith::train
