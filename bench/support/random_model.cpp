#include "bench/support/random_model.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "base/random_tensors.h"
#include "model/layers/parameter_source.h"
#include "model/transformer/parameters.h"

namespace draftsmith::bench {

namespace {

constexpr int64_t kBlock = 1'000'003;  // a prime

// Returns the numbers that all others repeat, fp32 on the CPU.
const at::Tensor& block_on_host() {
  static const at::Tensor block = normal_tensor({kBlock}, 1.0, 1, "bench", at::kFloat);
  return block;
}

at::Tensor drawn(const model::ParameterSpec& spec, const model::TransformerConfig& config, const RandomNumbers& numbers,
                 const at::TensorOptions& options) {
  const auto [mean, deviation] = model::initial_values(spec, config);
  if (deviation == 0) return at::full(spec.shape, mean, options);
  return numbers.normal(spec.name, spec.shape, deviation, c10::typeMetaToScalarType(options.dtype()));
}

class RandomParameters final : public model::ParameterSource {
 public:
  RandomParameters(const model::TransformerConfig& config, at::Device device, at::ScalarType type)
      : config_(config), device_(device), type_(type), numbers_(device) {
    for (model::ParameterSpec& spec : model::expected_parameters(config)) specs_[spec.name] = std::move(spec);
  }

  // A tied head asks for the embedding a second time: it must be the same.
  at::Tensor find(const std::string& name) override {
    const auto spec = specs_.find(name);
    if (spec == specs_.end()) return {};
    if (name == "embedding.weight" && embedding_.defined()) return embedding_;
    const bool keep = type_ == at::kHalf && model::keeps_fp32_in_half(config_, name);
    const at::Tensor value =
        drawn(spec->second, config_, numbers_, at::TensorOptions(device_).dtype(keep ? at::kFloat : type_));
    if (name == "embedding.weight") embedding_ = value;
    return value;
  }

  at::ScalarType type() const override { return type_; }

 private:
  const model::TransformerConfig& config_;
  at::Device device_;
  at::ScalarType type_;
  RandomNumbers numbers_;
  std::map<std::string, model::ParameterSpec> specs_;
  at::Tensor embedding_;
};

}  // namespace

RandomNumbers::RandomNumbers(at::Device device) : block_(block_on_host().to(device)) {}

at::Tensor RandomNumbers::normal(const std::string& name, at::IntArrayRef shape, double deviation,
                                 at::ScalarType type) const {
  at::Tensor numbers = at::empty(shape, block_.options().dtype(type));
  const at::Tensor flat = numbers.view({-1});
  const int64_t whole = flat.numel() / kBlock;
  const int64_t rest = flat.numel() - whole * kBlock;
  const int64_t used = std::min(flat.numel(), kBlock);
  const auto first = static_cast<int64_t>(stream_of(name) % static_cast<uint64_t>(kBlock));
  const int64_t before_end = std::min(used, kBlock - first);
  const at::Tensor part = at::cat({block_.narrow(0, first, before_end), block_.narrow(0, 0, used - before_end)});
  const at::Tensor scaled = part.mul_(deviation).to(type);
  if (whole > 0) flat.narrow(0, 0, whole * kBlock).view({whole, kBlock}).copy_(scaled);
  flat.narrow(0, whole * kBlock, rest).copy_(scaled.narrow(0, 0, rest));
  return numbers;
}

std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type) {
  const at::NoGradGuard no_gradients;
  RandomParameters parameters(config, device, type);
  return std::make_unique<model::TransformerModel>(config, parameters);
}

std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device) {
  const RandomNumbers numbers(device);
  std::map<std::string, at::Tensor> parameters;
  for (const model::ParameterSpec& spec : model::expected_parameters(config)) {
    parameters[spec.name] = drawn(spec, config, numbers, at::TensorOptions(device).dtype(at::kFloat));
  }
  auto made = std::make_unique<model::TransformerModel>(config, std::move(parameters));
  made->requires_grad(true);
  return made;
}

}  // namespace draftsmith::bench
