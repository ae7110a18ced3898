#include "infer/costs/step_work.h"

#include <functional>

#include "model/transformer/parameters.h"

namespace draftsmith::infer {

namespace {

using model::ParameterSpec;
using model::TransformerConfig;

// Returns whether only begin() reads the parameter.
bool projects_encoder_states(const std::string& name) {
  return name.find(".cross_attention.key.") != std::string::npos ||
         name.find(".cross_attention.value.") != std::string::npos;
}

// Returns whether every token of the decoder reads the whole parameter: of the table of relative positions it takes a
// few numbers.
bool of_decoder(const std::string& name) {
  return name.starts_with("decoder.") && !projects_encoder_states(name) && !name.ends_with("relative_bias.weight");
}

bool of_encoder(const std::string& name) {
  return name.starts_with("encoder.") && !name.ends_with("relative_bias.weight");
}

int64_t bytes_of(const ParameterSpec& spec, const TransformerConfig& config, c10::ScalarType type) {
  constexpr int64_t kFp32 = sizeof(float);
  const int64_t numbers = c10::multiply_integers(spec.shape);
  if (type == at::kChar) return spec.shape.size() == 2 ? numbers + kFp32 * spec.shape.front() : kFp32 * numbers;
  if (type == at::kHalf && model::keeps_fp32_in_half(config, spec.name)) return kFp32 * numbers;
  return numbers * static_cast<int64_t>(c10::elementSize(type));
}

using Reads = std::function<bool(const std::string& name)>;

// Returns the work of `tokens` tokens that pass through the parameters for which `reads` is true.
Work weights_work(const TransformerConfig& config, c10::ScalarType type, double tokens, const Reads& reads) {
  Work work;
  for (const ParameterSpec& spec : model::expected_parameters(config)) {
    if (!reads(spec.name)) continue;
    work.weight_bytes += static_cast<double>(bytes_of(spec, config, type));
    if (spec.shape.size() == 2) work.operations += 2 * tokens * static_cast<double>(c10::multiply_integers(spec.shape));
  }
  return work;
}

Reads read_by_a_step(const TransformerConfig& config) {
  return [head = model::head_parameter(config)](const std::string& name) { return name == head || of_decoder(name); };
}

// Returns the bytes of the keys and values of one token in all layers.
double cached_bytes(const TransformerConfig& config, c10::ScalarType type) {
  const auto number = static_cast<int64_t>(type == at::kChar ? sizeof(float) : c10::elementSize(type));
  return static_cast<double>(2 * config.decoder_layers * config.key_value_heads() * config.head_width * number);
}

}  // namespace

double attention_operations(const TransformerConfig& config, double queries, double keys) {
  return 4 * queries * keys * static_cast<double>(config.heads * config.head_width);
}

int64_t step_weight_bytes(const TransformerConfig& config, c10::ScalarType type) {
  return static_cast<int64_t>(weights_work(config, type, 1, read_by_a_step(config)).weight_bytes);
}

Work step_work(const TransformerConfig& config, c10::ScalarType type, const StepSize& size) {
  const auto rows = static_cast<double>(size.rows);
  const auto tokens = static_cast<double>(size.tokens);
  const auto length = static_cast<double>(size.length);
  const double source = config.encoder_decoder ? static_cast<double>(size.source) : 0;
  Work work = weights_work(config, type, rows * tokens, read_by_a_step(config));
  work.cache_bytes = rows * (length + tokens + source) * cached_bytes(config, type);
  const double seen = length + (tokens + 1) / 2;  // by a token, on average, itself included
  work.operations +=
      rows * static_cast<double>(config.decoder_layers) * attention_operations(config, tokens, seen + source);
  return work;
}

Work encoder_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  const auto tokens = static_cast<double>(source);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_encoder);
  work.operations += static_cast<double>(rows * config.encoder_layers) * attention_operations(config, tokens, tokens);
  return work;
}

Work cross_attention_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  return weights_work(config, type, static_cast<double>(rows * source), projects_encoder_states);
}

Work prompt_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t prompt) {
  const auto tokens = static_cast<double>(prompt);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_decoder);
  work.operations +=
      static_cast<double>(rows * config.decoder_layers) * attention_operations(config, tokens, (tokens + 1) / 2);
  return work;
}

}  // namespace draftsmith::infer
