#include "bench/support/random_model.h"

#include <ATen/core/grad_mode.h>

#include "model/layers/parameter_source.h"
#include "model/transformer/initialization.h"
#include "model/transformer/parameters.h"

namespace draftsmith::bench {

namespace {

at::Tensor drawn(const model::ParameterSpec& spec, const model::TransformerConfig& config,
                 const at::TensorOptions& options) {
  const auto [mean, deviation] = model::initial_values(spec, config);
  if (deviation == 0) return at::full(spec.shape, mean, options);
  return at::empty(spec.shape, options).normal_(mean, deviation);
}

class RandomParameters final : public model::ParameterSource {
 public:
  RandomParameters(const model::TransformerConfig& config, at::Device device, at::ScalarType type)
      : config_(config), device_(device), type_(type) {
    for (model::ParameterSpec& spec : model::expected_parameters(config)) specs_[spec.name] = std::move(spec);
  }

  // A tied head asks for the embedding a second time: it must be the same.
  at::Tensor find(const std::string& name) override {
    const auto spec = specs_.find(name);
    if (spec == specs_.end()) return {};
    if (name == "embedding.weight" && embedding_.defined()) return embedding_;
    const bool keep = type_ == at::kHalf && model::keeps_fp32_in_half(config_, name);
    const at::Tensor value = drawn(spec->second, config_, at::TensorOptions(device_).dtype(keep ? at::kFloat : type_));
    if (name == "embedding.weight") embedding_ = value;
    return value;
  }

  at::ScalarType type() const override { return type_; }

 private:
  const model::TransformerConfig& config_;
  at::Device device_;
  at::ScalarType type_;
  std::map<std::string, model::ParameterSpec> specs_;
  at::Tensor embedding_;
};

}  // namespace

std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type) {
  const at::NoGradGuard no_gradients;
  RandomParameters parameters(config, device, type);
  return std::make_unique<model::TransformerModel>(config, parameters);
}

std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device) {
  std::map<std::string, at::Tensor> parameters;
  for (const model::ParameterSpec& spec : model::expected_parameters(config)) {
    parameters[spec.name] = drawn(spec, config, at::TensorOptions(device).dtype(at::kFloat));
  }
  auto made = std::make_unique<model::TransformerModel>(config, std::move(parameters));
  made->requires_grad(true);
  return made;
}

}  // namespace draftsmith::bench
