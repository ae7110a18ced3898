#include "model/transformer/initialization.h"

#include <cmath>
#include <stdexcept>

#include "base/random_tensors.h"

namespace draftsmith::model {
namespace {

double power(int64_t value) {
  return 1.0 / std::sqrt(static_cast<double>(value));
}

bool projects(const std::string& name) {
  return name.ends_with("primary_projection.weight") || name == "encoder_projection.weight";
}

// Returns the deviation of a weight of a decoder-only model: one number for all, except what adds to the residual
// stream in GPT-2 (Radford et al. 2019).
double plain_deviation(const std::string& name, const TransformerConfig& config) {
  const bool embeds = name == "embedding.weight" || name == "head.weight";
  const bool adds = name.ends_with(".output.weight") || name.ends_with(".down.weight");
  const bool smaller = config.smaller_residual_start && adds;
  return (embeds ? config.embedding_std.value_or(config.initializer_range) : config.initializer_range) *
         (smaller ? power(2 * config.decoder_layers) : 1.0);
}

// Standard deviation of a weight matrix of T5, by the part of the model it belongs to.
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

at::Tensor initial_projection(const ParameterSpec& spec, ProjectionStart start, uint64_t seed) {
  if (start == ProjectionStart::kIdentity) return at::eye(spec.shape.at(0), spec.shape.at(1), at::kFloat);
  return normal_tensor(spec.shape, power(spec.shape.at(1)), seed, "init/" + spec.name, at::kFloat);
}

InitialValues initial_values(const ParameterSpec& spec, const TransformerConfig& config) {
  if (spec.name.ends_with("norm.weight")) return {config.encoder_decoder ? config.initializer_factor : 1.0, 0};
  if (spec.name.ends_with(".bias")) return {};
  if (projects(spec.name)) return {0, power(spec.shape.at(1))};
  return {0, config.encoder_decoder ? deviation(spec.name, config) : plain_deviation(spec.name, config)};
}

std::map<std::string, at::Tensor> initial_parameters(const TransformerConfig& config, uint64_t seed) {
  std::map<std::string, at::Tensor> parameters;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    const auto [mean, deviation] = initial_values(spec, config);
    parameters[spec.name] = deviation == 0
                                ? at::full(spec.shape, mean, at::kFloat)
                                : normal_tensor(spec.shape, deviation, seed, "init/" + spec.name, at::kFloat);
  }
  return parameters;
}

}  // namespace draftsmith::model
