#include "model/transformer/parameters.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include "base/random_tensors.h"

namespace draftsmith::model {
namespace {

void add_norm(const TransformerConfig& config, const std::string& prefix, std::vector<ParameterSpec>& specs) {
  specs.push_back({prefix + ".weight", {config.width}});
  if (config.norm == Norm::kLayer) {
    specs.push_back({prefix + ".bias", {config.width}});
  }
}

void add_sublayer_norms(const TransformerConfig& config, const std::string& prefix, std::vector<ParameterSpec>& specs) {
  add_norm(config, prefix + ".norm", specs);
  if (config.norm_place == NormPlace::kAround) add_norm(config, prefix + ".output_norm", specs);
}

void add_linear(const std::string& prefix, int64_t out, int64_t in, bool bias, std::vector<ParameterSpec>& specs) {
  specs.push_back({prefix + ".weight", {out, in}});
  if (bias) {
    specs.push_back({prefix + ".bias", {out}});
  }
}

// `read`: numbers that query, key and value read.
void add_attention(const TransformerConfig& config, const std::string& prefix, int64_t read,
                   std::vector<ParameterSpec>& specs) {
  const int64_t inner = config.heads * config.head_width;
  const int64_t shared = config.key_value_heads() * config.head_width;
  add_sublayer_norms(config, prefix, specs);
  add_linear(prefix + ".query", inner, read, config.projection_bias, specs);
  add_linear(prefix + ".key", shared, read, config.projection_bias, specs);
  add_linear(prefix + ".value", shared, read, config.projection_bias, specs);
  add_linear(prefix + ".output", config.width, inner, config.output_bias, specs);
}

// Adds what self-attention has and cross-attention lacks.
void add_self_attention(const TransformerConfig& config, const std::string& prefix, int64_t read,
                        std::vector<ParameterSpec>& specs) {
  add_attention(config, prefix, read, specs);
  if (config.query_key_norm != QueryKeyNorm::kNone) {
    const bool by_head = config.query_key_norm == QueryKeyNorm::kHead;
    specs.push_back({prefix + ".query_norm.weight", {(by_head ? 1 : config.heads) * config.head_width}});
    specs.push_back({prefix + ".key_norm.weight", {(by_head ? 1 : config.key_value_heads()) * config.head_width}});
  }
  if (config.relative_bias_in_layers) {
    specs.push_back({prefix + ".relative_bias.weight", {config.relative_buckets, config.heads}});
  }
}

void add_feed_forward(const TransformerConfig& config, const std::string& prefix, std::vector<ParameterSpec>& specs) {
  add_sublayer_norms(config, prefix, specs);
  if (config.gated) {
    add_linear(prefix + ".gate", config.ff_width, config.width, config.feed_forward_bias, specs);
  }
  add_linear(prefix + ".up", config.ff_width, config.width, config.feed_forward_bias, specs);
  add_linear(prefix + ".down", config.width, config.ff_width, config.feed_forward_bias, specs);
}

void add_stack(const TransformerConfig& config, bool decoder, std::vector<ParameterSpec>& specs) {
  const std::string stack = decoder ? "decoder" : "encoder";
  const bool embeds = !config.reads_features();
  if (embeds && config.embedding_norm) {
    add_norm(config, stack + ".embedding_norm", specs);
  }
  if (embeds && config.positions == Positions::kLearned) {
    specs.push_back({stack + ".positions.weight", {config.position_offset + config.max_positions, config.width}});
  }
  if (config.positions == Positions::kRelativeBias && !config.relative_bias_in_layers) {
    specs.push_back({stack + ".relative_bias.weight", {config.relative_buckets, config.heads}});
  }
  const int64_t layers = decoder ? config.decoder_layers : config.encoder_layers;
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = stack + "." + std::to_string(i);
    const bool joined = config.reads_features() && i == 0;
    add_self_attention(config, block + ".self_attention", (joined ? 2 : 1) * config.width, specs);
    if (decoder && config.encoder_decoder) {
      add_attention(config, block + ".cross_attention", config.width, specs);
    }
    add_feed_forward(config, block + ".feed_forward", specs);
    if (decoder && config.tandem_secondary()) {
      specs.push_back({block + ".primary_projection.weight", {config.width, config.tandem.primary_width}});
    }
  }
  if (config.final_norm) {
    add_norm(config, stack + ".final_norm", specs);
  }
}

}  // namespace

std::vector<ParameterSpec> expected_parameters(const TransformerConfig& config) {
  std::vector<ParameterSpec> specs;
  if (config.reads_features()) {
    const auto read = static_cast<int64_t>(config.features.layers.size());
    specs.push_back({"feature_projection.weight", {config.width, read * config.width}});
    add_norm(config, "feature_norm", specs);
    if (config.features.block) specs.push_back({"feature_mask.weight", {2, config.width}});
    for (const char* side : {"previous", "next"}) {
      if (config.features.markov_rank == 0) break;
      specs.push_back(
          {fmt::format("feature_markov.{}.weight", side), {config.vocabulary_rows(), config.features.markov_rank}});
    }
  } else {
    specs.push_back({"embedding.weight", {config.vocabulary_rows(), config.width}});
  }
  if (config.has_encoder()) {
    add_stack(config, false, specs);
  } else if (config.encoder_decoder && !config.reads_features()) {
    specs.push_back({"encoder_projection.weight", {config.width, config.projected_width()}});
  }
  add_stack(config, true, specs);
  if (config.own_head()) {
    specs.push_back({"head.weight", {config.vocabulary_rows(), config.width}});
  }
  if (config.head_bias && (config.own_head() || !config.reads_features())) {
    specs.push_back({"head.bias", {config.vocabulary_rows()}});
  }
  return specs;
}

std::string head_parameter(const TransformerConfig& config) {
  return config.own_head() ? "head.weight" : "embedding.weight";
}

int64_t count_numbers(const TransformerConfig& config) {
  int64_t count = 0;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    count += c10::multiply_integers(spec.shape);
  }
  return count;
}

bool keeps_fp32_in_half(const TransformerConfig& config, const std::string& canonical_name) {
  return config.t5_like() && canonical_name.ends_with(".feed_forward.down.weight");
}

bool is_constant(const std::string& name) {
  return name.ends_with("head.bias");
}

at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype) {
  return dtype == at::kHalf && keeps_fp32_in_half(config, parameter) ? at::kFloat : dtype;
}

// Sines of all pairs come first, then cosines, of the wavelengths 2 pi 10^(8 i / D), computed in fp64 as in Marian. In
// M2M-100 i rises to D/2 at the last pair, and all is fp32.
at::Tensor sinusoids(const TransformerConfig& config) {
  constexpr double kLongest = 10000.0;
  const int64_t width = config.width;
  const int64_t pairs = width / 2;
  const at::ScalarType type = config.sinusoids_reach_end ? at::kFloat : at::kDouble;
  const at::Tensor position =
      at::arange(config.position_offset, config.position_offset + config.max_positions, type).unsqueeze(1);
  if (config.sinusoids_reach_end) {
    const double step = std::log(kLongest) / static_cast<double>(std::max<int64_t>(1, pairs - 1));
    const at::Tensor angle = position * at::exp(at::arange(pairs, type) * -step);  // [P,D/2]
    return at::constant_pad_nd(at::cat({angle.sin(), angle.cos()}, 1), {0, width % 2});
  }
  const at::Tensor exponent = 2 * at::arange((width + 1) / 2, type) / static_cast<double>(width);
  const at::Tensor angle = position / at::pow(kLongest, exponent);  // an odd width has one more sine
  return at::cat({angle.sin(), angle.narrow(1, 0, pairs).cos()}, 1).to(at::kFloat);
}

namespace {

double power(int64_t value) {
  return 1.0 / std::sqrt(static_cast<double>(value));
}

bool projects(const std::string& name) {
  return name.ends_with("primary_projection.weight") || name == "encoder_projection.weight" ||
         name == "feature_projection.weight" || name == "feature_markov.previous.weight";
}

// Returns the deviation of a weight of a model that is not T5-like: one number for all, except what adds to the
// residual stream in GPT-2 (Radford et al. 2019).
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
  if (is("embedding") || is("feature_mask")) {
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
  if (spec.name.ends_with("norm.weight")) {
    return {config.t5_like() ? config.initializer_factor : config.norm == Norm::kRmsPlusOne ? 0.0 : 1.0, 0};
  }
  if (spec.name.ends_with(".bias") || spec.name == "feature_markov.next.weight") return {};
  if (projects(spec.name)) return {0, power(spec.shape.at(1))};
  return {0, config.t5_like() ? deviation(spec.name, config) : plain_deviation(spec.name, config)};
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
