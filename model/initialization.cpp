#include "model/initialization.h"

#include <cmath>
#include <stdexcept>

#include "base/random_tensors.h"
#include "model/parameters.h"

namespace draftsmith::model {
namespace {

double power(int64_t value) {
  return 1.0 / std::sqrt(static_cast<double>(value));
}

// Standard deviation of a weight matrix, by the part of the model it belongs to.
double deviation(const std::string& name, const TransformerConfig& config) {
  const double f = config.initializer_factor;
  const auto is = [&](const char* part) { return name.ends_with(std::string(part) + ".weight"); };
  if (is("embedding")) {
    return f * config.embedding_std.value_or(1.0);
  }
  if (is("head")) {
    return f * config.embedding_std.value_or(power(config.width));
  }
  if (is(".query")) {
    return f * power(config.width * config.head_width);
  }
  if (is(".output")) {
    return f * power(config.heads * config.head_width);
  }
  if (is(".down")) {
    return f * power(config.ff_width);
  }
  if (is(".key") || is(".value") || is(".gate") || is(".up") || is(".relative_bias")) {
    return f * power(config.width);
  }
  throw std::logic_error("no initialisation for " + name);
}

}  // namespace

std::map<std::string, at::Tensor> initial_parameters(const TransformerConfig& config, uint64_t seed) {
  std::map<std::string, at::Tensor> parameters;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    at::Tensor& value = parameters[spec.name];
    if (spec.name.ends_with("norm.weight")) {
      value = at::full(spec.shape, config.initializer_factor, at::kFloat);
    } else if (spec.name.ends_with("norm.bias")) {
      value = at::zeros(spec.shape, at::kFloat);
    } else {
      value = normal_tensor(spec.shape, deviation(spec.name, config), seed, "init/" + spec.name, at::kFloat);
    }
  }
  return parameters;
}

}  // namespace draftsmith::model
