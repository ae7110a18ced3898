#include "model/layers/recomputation.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace draftsmith::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Settings of autocast for one type of device.
struct AutocastSettings {
  at::DeviceType device = at::kCPU;
  bool enabled = false;
  at::ScalarType type = at::kBFloat16;

  static AutocastSettings present(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
  void apply() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
  }
};

// Gives autocast the settings of an earlier time while it exists. Converted weights are not cached: those of a run
// without gradients have none, and those of a run with gradients belong to its graph.
class AutocastAgain {
 public:
  explicit AutocastAgain(const AutocastSettings& settings)
      : before_(AutocastSettings::present(settings.device)), cached_(at::autocast::is_autocast_cache_enabled()) {
    settings.apply();
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastAgain() {
    before_.apply();
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  AutocastAgain(const AutocastAgain&) = delete;
  AutocastAgain& operator=(const AutocastAgain&) = delete;

 private:
  AutocastSettings before_;
  bool cached_;
};

// A part and how it was run.
struct PartRun : torch::CustomClassHolder {
  ModelPart part;
  size_t inputs = 0;               // undefined ones included
  std::vector<size_t> defined;     // places of the defined inputs
  std::vector<at::Tensor> leaves;  // the defined parameters
  AutocastSettings autocast;

  // Runs the part on its defined inputs.
  at::Tensor operator()(const variable_list& given) const {
    const AutocastAgain settings(autocast);
    variable_list all(inputs);
    for (size_t i = 0; i < given.size(); ++i) all[defined[i]] = given[i];
    return part(all);
  }
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  // Runs the part with gradients and drops them: without, devices take other operators, which round otherwise.
  static at::Tensor first_run(const PartRun& run, const variable_list& inputs) {
    variable_list own;
    for (const at::Tensor& input : inputs) own.push_back(input.detach().requires_grad_(input.requires_grad()));
    const at::AutoGradMode with_gradients(true);
    return run(own).detach();
  }

  // `tensors`: the defined inputs, then the leaves.
  static at::Tensor forward(AutogradContext* context, at::TensorList tensors, const c10::intrusive_ptr<PartRun>& run) {
    const variable_list inputs = tensors.slice(0, run->defined.size()).vec();
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->save_for_backward(inputs);
    return first_run(*run, inputs);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto run = c10::static_intrusive_pointer_cast<PartRun>(context->saved_data["run"].toCapsule());
    variable_list inputs = context->get_saved_variables();
    const size_t count = inputs.size() + run->leaves.size();
    variable_list wanted;
    std::vector<size_t> places;  // of the wanted gradients
    for (size_t i = 0; i < count; ++i) {
      if (!context->needs_input_grad(i)) continue;
      if (i < inputs.size()) inputs[i] = inputs[i].detach().requires_grad_(true);
      wanted.push_back(i < inputs.size() ? inputs[i] : run->leaves[i - inputs.size()]);
      places.push_back(i);
    }
    variable_list gradients(count + 1);  // the run has none
    if (wanted.empty()) return gradients;
    const at::AutoGradMode with_gradients(true);
    const variable_list found = torch::autograd::grad({(*run)(inputs)}, wanted, {upstream[0]},
                                                      /*retain_graph=*/false, /*create_graph=*/false,
                                                      /*allow_unused=*/true);
    for (size_t i = 0; i < places.size(); ++i) gradients[places[i]] = found[i];
    return gradients;
  }
};

}  // namespace

at::Tensor recomputed(ModelPart part, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& parameters) {
  auto run = c10::make_intrusive<PartRun>();
  run->part = std::move(part);
  run->inputs = inputs.size();
  std::vector<at::Tensor> tensors;  // all that are defined
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    run->defined.push_back(i);
    tensors.push_back(inputs[i]);
  }
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined()) run->leaves.push_back(parameter);
  }
  run->autocast = AutocastSettings::present(tensors.front().device().type());
  tensors.insert(tensors.end(), run->leaves.begin(), run->leaves.end());
  return Recomputed::apply(at::TensorList(tensors), run);
}

}  // namespace draftsmith::model
