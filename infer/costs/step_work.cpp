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

// Returns whether only the tokens that a Tandem secondary takes over from its primary read the parameter.
bool projects_primary(const std::string& name) {
  return name.find(".primary_projection.") != std::string::npos;
}

// Returns whether every token of the decoder reads the whole parameter: of the table of relative positions it takes a
// few numbers.
bool of_decoder(const std::string& name) {
  return name.starts_with("decoder.") && !projects_encoder_states(name) && !projects_primary(name) &&
         !name.ends_with("relative_bias.weight");
}

// Returns whether a layer of the decoder has the parameter.
bool of_decoder_layer(const std::string& name) {
  return of_decoder(name) && !name.starts_with("decoder.final_norm.");
}

// Returns whether the parameter makes keys or values of a decoder's own tokens.
bool of_own_keys(const std::string& name) {
  return name.starts_with("decoder.") && (name.find(".self_attention.key.") != std::string::npos ||
                                          name.find(".self_attention.value.") != std::string::npos);
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

// The head and the norm before it.
Reads read_by_the_head(const TransformerConfig& config) {
  return [head = model::head_parameter(config)](const std::string& name) {
    return name == head || name.starts_with("decoder.final_norm.");
  };
}

void add_attention(double operations, Work& work) {
  work.operations += operations;
  work.attention += operations;
}

// Adds weights that are read `passes` times, and the products of `tokens` tokens with them.
void add_weights(const Work& once, double passes, double tokens, Work& work) {
  work.weight_bytes += passes * once.weight_bytes;
  work.operations += tokens * once.operations;
}

// Returns the bytes of the keys and values of one token in all layers.
double cached_bytes(const TransformerConfig& config, c10::ScalarType type) {
  const auto number = static_cast<int64_t>(type == at::kChar ? sizeof(float) : c10::elementSize(type));
  return static_cast<double>(2 * config.decoder_layers * config.key_value_heads() * config.head_width * number);
}

}  // namespace

Work& Work::operator+=(const Work& added) {
  weight_bytes += added.weight_bytes;
  cache_bytes += added.cache_bytes;
  operations += added.operations;
  attention += added.attention;
  return *this;
}

Work Work::times(double count) const {
  return {count * weight_bytes, count * cache_bytes, count * operations, count * attention};
}

Work layers_work(const TransformerConfig& config, c10::ScalarType type, const LayerCounts& counts) {
  const auto layers = static_cast<double>(config.decoder_layers);
  Work work;
  add_weights(weights_work(config, type, 1, of_decoder_layer), counts.layer_passes / layers,
              counts.layer_tokens / layers, work);
  add_weights(weights_work(config, type, 1, read_by_the_head(config)), counts.head_passes, counts.head_tokens, work);
  add_weights(weights_work(config, type, 1, of_own_keys), counts.kv_passes / layers, counts.kv_tokens / layers, work);
  work.cache_bytes = counts.layer_keys / layers * cached_bytes(config, type);
  add_attention(attention_operations(config, 1, counts.layer_pairs), work);
  return work;
}

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
  const auto layers = static_cast<double>(config.decoder_layers);
  const double seen = length + (tokens + 1) / 2;  // by a token, on average, itself included
  return layers_work(config, type,
                     {.layer_passes = layers,
                      .layer_tokens = layers * rows * tokens,
                      .layer_keys = layers * rows * (length + tokens + source),
                      .layer_pairs = layers * rows * tokens * (seen + source),
                      .head_passes = 1,
                      .head_tokens = rows * tokens});
}

Work encoder_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  const auto tokens = static_cast<double>(source);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_encoder);
  add_attention(static_cast<double>(rows * config.encoder_layers) * attention_operations(config, tokens, tokens), work);
  return work;
}

Work cross_attention_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source) {
  return weights_work(config, type, static_cast<double>(rows * source), [](const std::string& name) {
    return projects_encoder_states(name) || name == "encoder_projection.weight";
  });
}

Work primary_work(const TransformerConfig& config, c10::ScalarType type, double tokens) {
  return weights_work(config, type, tokens,
                      [](const std::string& name) { return projects_primary(name) || of_own_keys(name); });
}

Work prompt_work(const TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t prompt) {
  const auto tokens = static_cast<double>(prompt);
  Work work = weights_work(config, type, static_cast<double>(rows) * tokens, of_decoder);
  add_attention(
      static_cast<double>(rows * config.decoder_layers) * attention_operations(config, tokens, (tokens + 1) / 2), work);
  return work;
}

}  // namespace draftsmith::infer
