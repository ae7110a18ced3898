#include "train/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_sub.h>
#include <fnmatch.h>

#include "base/error.h"

namespace draftsmith::train {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace

Fields<ParameterGroupOptions> ParameterGroupOptions::fields() {
  return Fields<ParameterGroupOptions>("parameter group")
      .add(
          "parameters", &ParameterGroupOptions::parameters, Required{},
          "Which parameters: a pattern on their canonical names, such as \"*.query.weight\" or \"embedding.weight\". A "
          "parameter belongs to the first group that matches.")
      .add(
          "lr_factor", &ParameterGroupOptions::lr_factor, Range{0},
          "Factor on the learning rate; 0 freezes. T5 from random weights: 1/sqrt(d_kv) for queries, 3 for embeddings.")
      .add("weight_decay_factor", &ParameterGroupOptions::weight_decay_factor, Range{0}, "Factor on the weight decay.");
}

std::vector<OptimizedParameter> group_parameters(const std::map<std::string, at::Tensor>& parameters,
                                                 const OptimizerOptions& options) {
  std::vector<OptimizedParameter> grouped;
  std::vector<int64_t> members(options.groups.size());
  for (const auto& [name, value] : parameters) {
    OptimizedParameter parameter{.name = name, .value = value, .weight_decay = options.weight_decay};
    for (size_t i = 0; i < options.groups.size(); ++i) {
      if (!matches(options.groups[i].parameters, name)) continue;
      parameter.lr_factor = options.groups[i].lr_factor;
      parameter.weight_decay *= options.groups[i].weight_decay_factor;
      ++members[i];
      break;
    }
    grouped.push_back(std::move(parameter));
  }
  Problems problems;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] > 0) continue;
    problems.add({.where = "optimizer.groups[" + std::to_string(i) + "].parameters",
                  .what = "the group has no parameter",
                  .expected = "a pattern of names such as " + parameters.begin()->first,
                  .found = "\"" + options.groups[i].parameters + "\"",
                  .hint = "`draftsmith inspect MODEL` lists the names; an earlier group may have taken them"});
  }
  problems.throw_if_any();
  return grouped;
}

Optimizer::Optimizer(std::vector<OptimizedParameter> parameters) : parameters_(std::move(parameters)) {}

void Optimizer::step(double lr, double gradient_scale) {
  const at::NoGradGuard no_grad;
  ++steps_;
  update(lr, gradient_scale);
}

void Optimizer::zero_grad() {
  for (OptimizedParameter& parameter : parameters_) parameter.value.mutable_grad().reset();
}

// ---- AdamW
// m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, w -= lr (m^ / (sqrt(v^) + eps) + decay w), with bias-corrected m^, v^.
// All parameters that learn alike are updated by one fused kernel.

namespace {

// Arguments of one fused call: parameters with the same rate and decay.
struct Lists {
  std::vector<at::Tensor> values, gradients, first_moments, second_moments;
};

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedParameter> parameters, const AdamWOptions& options)
      : Optimizer(std::move(parameters)), options_(options) {
    const at::NoGradGuard no_grad;
    for (const OptimizedParameter& parameter : this->parameters()) {
      first_moments_.push_back(at::zeros_like(parameter.value));
      second_moments_.push_back(at::zeros_like(parameter.value));
    }
  }

  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> tensors;
    for (size_t i = 0; i < first_moments_.size(); ++i) {
      tensors[parameters()[i].name + "/first_moment"] = first_moments_[i];
      tensors[parameters()[i].name + "/second_moment"] = second_moments_[i];
    }
    return tensors;
  }

 protected:
  void update(double lr, double gradient_scale) override {
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

 private:
  AdamWOptions options_;
  std::vector<at::Tensor> first_moments_;   // like each parameter
  std::vector<at::Tensor> second_moments_;  // like each parameter
};

}  // namespace

Fields<AdamWOptions> AdamWOptions::fields() {
  return Fields<AdamWOptions>("AdamW")
      .add("beta1", &AdamWOptions::beta1, Range{0, 0.9999999}, "Decay of the gradients' running mean.")
      .add("beta2", &AdamWOptions::beta2, Range{0, 0.9999999}, "Decay of the squared gradients' running mean.")
      .add("epsilon", &AdamWOptions::epsilon, Above{0}, "Added to the denominator.");
}

// ---- Adafactor (Shazeer and Stern 2018, Algorithms 4 and 5), as Transformers computes it with relative_step off
//   b2 = 1 - t^decay_rate;  s = g^2 + eps1
//   matrices: row = b2 row + (1-b2) mean_columns(s), column likewise; u = g / sqrt(row column / mean(row))
//   vectors:  v = b2 v + (1-b2) s; u = g / sqrt(v)
//   u /= max(1, rms(u)/clip_threshold);  u *= lr * (scale_parameter ? max(eps2, rms(w)) : 1)
//   with beta1: m = beta1 m + (1-beta1) u, u = m;   w -= decay * lr' * w, then w -= u

namespace {

// Numbers of a group's parameters on a device: several temporary tensors of this size exist at a time.
constexpr int64_t kNumbersAtOnce = int64_t{1} << 26;

// Returns the tensors as one, [n,...]; a single tensor is not copied.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  return tensors.size() == 1 ? tensors[0].unsqueeze(0) : at::stack(tensors);
}

// Returns the root mean square of each of n tensors [n,...], as a tensor [n,1,...]: reading it on the host would make a
// GPU wait.
at::Tensor rms(const at::Tensor& tensors) {
  std::vector<int64_t> dimensions;
  for (int64_t i = 1; i < tensors.dim(); ++i) dimensions.push_back(i);
  const at::Tensor norms = dimensions.empty() ? tensors.abs() : tensors.norm(2, dimensions, /*keepdim=*/true);
  return norms / std::sqrt(static_cast<double>(tensors.numel() / tensors.size(0)));
}

class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimizedParameter> parameters, const AdafactorOptions& options)
      : Optimizer(std::move(parameters)), options_(options) {
    const at::NoGradGuard no_grad;
    make_groups();
    for (Group& group : groups_) group.memory = make_memory(group);
  }

  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> tensors;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.members.size(); ++i) {
        const std::string& name = parameters()[group.members[i]].name;
        const auto add = [&](const char* what, const at::Tensor& all) {
          if (all.defined()) tensors[name + what] = all.select(0, static_cast<int64_t>(i));
        };
        add("/row", group.memory.row);
        add("/column", group.memory.column);
        add("/second_moment", group.memory.second_moment);
        add("/first_moment", group.memory.first_moment);
      }
    }
    return tensors;
  }

 protected:
  void update(double lr, double gradient_scale) override {
    for (const Group& group : groups_) {
      if (parameters()[group.members[0]].lr_factor == 0) continue;
      const auto learns = [&](int64_t i) {
        return parameters()[group.members[static_cast<size_t>(i)]].value.grad().defined();
      };
      const int64_t count = std::ssize(group.members);
      for (int64_t first = 0; first < count; ++first) {
        if (!learns(first)) continue;
        int64_t end = first + 1;
        while (end < count && learns(end)) ++end;
        update_members(group, first, end - first, lr, gradient_scale);
        first = end;
      }
    }
  }

 private:
  // Estimates of the n parameters of a group. Unused tensors are undefined.
  struct Memory {
    at::Tensor row;            // [n,...,rows]
    at::Tensor column;         // [n,...,columns]
    at::Tensor second_moment;  // [n,...]; vectors only
    at::Tensor first_moment;   // [n,...]; with beta1

    // Returns the part of the members [first, first + count).
    Memory part(int64_t first, int64_t count) const {
      const auto of = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, first, count) : all; };
      return {of(row), of(column), of(second_moment), of(first_moment)};
    }
  };
  // Parameters of one shape and one rate: on a device each operation is one launch for all of them. On a CPU, where it
  // would leave the caches, a group is one parameter.
  struct Group {
    std::vector<size_t> members;  // places among the parameters
    Memory memory;
  };

  void make_groups() {
    using Alike = std::tuple<std::vector<int64_t>, at::ScalarType, double, double>;
    std::map<Alike, size_t> open;  // the group that further parameters join
    for (size_t i = 0; i < parameters().size(); ++i) {
      const auto& [name, value, lr_factor, weight_decay] = parameters()[i];
      const int64_t at_once = value.is_cpu() ? 1 : kNumbersAtOnce / std::max<int64_t>(1, value.numel());
      const Alike key{value.sizes().vec(), value.scalar_type(), lr_factor, weight_decay};
      const auto found = open.find(key);
      if (found == open.end() || std::ssize(groups_[found->second].members) >= at_once) {
        open[key] = groups_.size();
        groups_.emplace_back();
      }
      groups_[open[key]].members.push_back(i);
    }
  }

  Memory make_memory(const Group& group) const {
    const at::Tensor& value = parameters()[group.members[0]].value;
    const auto zeros = [&](std::vector<int64_t> shape) {
      shape.insert(shape.begin(), std::ssize(group.members));
      return at::zeros(shape, value.options().requires_grad(false));
    };
    Memory memory;
    if (value.dim() >= 2) {
      memory.row = zeros(value.sizes().slice(0, static_cast<size_t>(value.dim() - 1)).vec());
      std::vector<int64_t> columns = value.sizes().vec();
      columns.erase(columns.end() - 2);
      memory.column = zeros(columns);
    } else {
      memory.second_moment = zeros(value.sizes().vec());
    }
    if (options_.beta1) memory.first_moment = zeros(value.sizes().vec());
    return memory;
  }

  // Updates the estimate of the second moment and returns g / sqrt(estimate). [n,...]
  at::Tensor normalized(const at::Tensor& gradients, const Memory& memory) const {
    const double beta2 = 1 - std::pow(static_cast<double>(steps()), options_.decay_rate);
    const at::Tensor square = gradients.square().add_(options_.epsilon1);
    if (memory.second_moment.defined()) {
      memory.second_moment.mul_(beta2).add_(square, 1 - beta2);
      return memory.second_moment.rsqrt().mul_(gradients);
    }
    memory.row.mul_(beta2).add_(square.mean(-1), 1 - beta2);
    memory.column.mul_(beta2).add_(square.mean(-2), 1 - beta2);
    const at::Tensor row_factor = (memory.row / memory.row.mean(-1, true)).rsqrt_().unsqueeze(-1);
    const at::Tensor column_factor = memory.column.unsqueeze(-2).rsqrt();
    return at::mul(row_factor, column_factor).mul_(gradients);
  }

  // Updates members [first, first + count) of a group, which have gradients.
  void update_members(const Group& group, int64_t first, int64_t count, double lr, double gradient_scale) {
    std::vector<at::Tensor> values, own_gradients;
    for (int64_t i = first; i < first + count; ++i) {
      values.push_back(parameters()[group.members[static_cast<size_t>(i)]].value);
      own_gradients.push_back(values.back().grad());
    }
    const OptimizedParameter& alike = parameters()[group.members[0]];
    const Memory memory = group.memory.part(first, count);
    const at::Tensor gradients = joined(own_gradients).mul_(gradient_scale);
    at::Tensor update = normalized(gradients, memory);
    update.div_((rms(update) / options_.clip_threshold).clamp_min_(1.0));
    at::Tensor rate = at::scalar_tensor(lr * alike.lr_factor, update.options());  // scalar, or [n,1,...]
    if (options_.scale_parameter) rate = rate * rms(joined(values)).clamp_min_(options_.epsilon2);
    update.mul_(rate);
    if (options_.beta1) update = memory.first_moment.mul_(*options_.beta1).add_(update, 1 - *options_.beta1);
    if (alike.weight_decay != 0) at::_foreach_sub_(values, (joined(values) * rate).unbind(0), alike.weight_decay);
    at::_foreach_sub_(values, update.unbind(0));
  }

  AdafactorOptions options_;
  std::vector<Group> groups_;
};

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

Fields<OptimizerOptions> OptimizerOptions::fields() {
  return Fields<OptimizerOptions>("optimizer")
      .add("name", &OptimizerOptions::name, Choices{"adamw", "adafactor"}, "Which optimizer.")
      .add("lr", &OptimizerOptions::lr, Range{0, 100}, "Peak learning rate; the schedule's factor is applied to it.")
      .add("weight_decay", &OptimizerOptions::weight_decay, Range{0, 100},
           "Decoupled weight decay: each step subtracts lr * weight_decay of every weight.")
      .add("adamw", &OptimizerOptions::adamw, ChosenByName{}, "Options of adamw.")
      .add("adafactor", &OptimizerOptions::adafactor, ChosenByName{}, "Options of adafactor.")
      .add("groups", &OptimizerOptions::groups, "Parameters with their own learning rates.");
}

std::unique_ptr<Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                          const OptimizerOptions& options) {
  throw_problems_of(validate_options<OptimizerOptions>, options, "optimizer");
  std::vector<OptimizedParameter> grouped = group_parameters(parameters, options);
  if (options.name == "adamw") return std::make_unique<AdamW>(std::move(grouped), options.adamw);
  return std::make_unique<Adafactor>(std::move(grouped), options.adafactor);
}

}  // namespace draftsmith::train
