#include "train/optimizers/optimizer.h"

#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <fnmatch.h>

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

void Optimizer::restore(const std::map<std::string, at::Tensor>& stored, int64_t steps) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> own = state();
  if (stored.size() != own.size()) throw std::logic_error("optimizer state with other tensors than this optimizer's");
  for (const auto& [name, tensor] : own) {
    const auto found = stored.find(name);
    if (found == stored.end() || found->second.sizes() != tensor.sizes()) {
      throw std::logic_error("optimizer state does not fit: " + name);
    }
    at::Tensor target = tensor;
    target.copy_(found->second);
  }
  set_steps(steps);
}

}  // namespace draftsmith::train
