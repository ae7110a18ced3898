// Llama 1 to 3, TinyLlama and OpenLLaMA, and the families that are Llama but for a few keys: Mistral, Qwen 2 to 3,
// SmolLM3, Granite 3, OLMo-2 and Phi-3. Keys and defaults are those of Transformers 5.23's configurations.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// ---- What they share

TransformerConfig llama_base(const std::string& family) {
  TransformerConfig config = decoder_only(family);
  config.activation = Activation::kSilu;
  config.gated = true;
  config.positions = Positions::kRotary;
  return config;
}

void check_heads(ConfigReader& reader, TransformerConfig& config) {
  if (config.kv_heads > config.heads || config.heads % config.kv_heads != 0) {
    reader.wrong("num_key_value_heads", "does not divide the number of heads",
                 fmt::format("a divisor of {}", config.heads));
    config.kv_heads = config.heads;
  }
  if (config.head_width % 2 != 0) {
    reader.wrong("head_dim", "is odd, and rotary positions need pairs", "an even number");
  }
}

// The values of a config.json without any, and the keys that a family has.
struct LlamaDefaults {
  int64_t width = 4096, ff_width = 11008, layers = 32, heads = 32;
  int64_t head_width = 0;  // 0: the width divided by the heads
  int64_t positions = 2048;
  double norm_epsilon = 1e-6;
  DecoderOnlyDefaults ids = {};
  bool attention_bias = false;         // there is a key for biases of all four projections
  bool feed_forward_bias = false;      // and one for those of the feed-forward layers
  const char* rotary_share = nullptr;  // the key of the rotated share of a head
  int64_t window = 0;                  // of a sliding_window that is absent; 0: none
  bool window_switch = false;          // a window counts only with use_sliding_window
};

// Refuses windows of attention that texts within max_positions would outgrow.
void check_window(ConfigReader& reader, const TransformerConfig& config, int64_t fallback) {
  if (reader.says_null("sliding_window")) return;
  const int64_t window = reader.get_int("sliding_window", {1, kMaxPositions}, fallback);
  if (window == 0 || window >= config.max_positions) return;
  reader.problems().add(
      {.where = reader.where(),
       .what = "'sliding_window' cuts attention, which is not supported",
       .expected = fmt::format("null, or at least {} (max_position_embeddings)", config.max_positions),
       .found = std::to_string(window),
       .hint = fmt::format("with \"max_position_embeddings\": {} the model takes all texts that the "
                           "window does not cut",
                           window)});
}

void check_layer_types(ConfigReader& reader) {
  if (!reader.has("layer_types")) return;
  const auto full = [](const nlohmann::json& type) { return type == "full_attention"; };
  if (reader.at("layer_types").is_array() && std::ranges::all_of(reader.at("layer_types"), full)) return;
  reader.wrong("layer_types", "has layers with attention of another kind", "\"full_attention\" for each layer");
}

void attention_kind_keys(ConfigKeys& keys, const TransformerConfig& config, const LlamaDefaults& defaults) {
  keys.known({"sliding_window", "max_window_layers", "layer_types"});
  if (defaults.window_switch) keys.fixed("use_sliding_window", false);
  if (!keys.reads()) return;
  if (!defaults.window_switch) check_window(keys.reader(), config, defaults.window);
  check_layer_types(keys.reader());
}

void keys_like_llama(ConfigKeys& keys, TransformerConfig& config, const LlamaDefaults& defaults) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, defaults.width);
  keys.integer("intermediate_size", config.ff_width, {1, kMaxWidth}, defaults.ff_width);
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, defaults.layers);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, defaults.heads);
  config.kv_heads = config.key_value_heads();
  keys.integer("num_key_value_heads", config.kv_heads, {1, kMaxHeads}, config.heads);
  const int64_t share = std::max<int64_t>(1, config.width / config.heads);
  keys.integer("head_dim", config.head_width, {1, kMaxWidth}, defaults.head_width > 0 ? defaults.head_width : share);
  if (keys.reads()) check_heads(keys.reader(), config);
  keys.activation("hidden_act", config.activation, "silu");
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, defaults.positions);
  keys.number("rms_norm_eps", config.norm_epsilon, defaults.norm_epsilon, 0.0, 1.0);
  if (defaults.attention_bias) {
    keys.flag("attention_bias", config.projection_bias, false);
    config.output_bias = config.projection_bias;
  }
  if (defaults.feed_forward_bias) keys.flag("mlp_bias", config.feed_forward_bias, false);
  keys.number("attention_dropout", config.dropout, 0.0, 0.0, 0.999);
  attention_kind_keys(keys, config, defaults);
  rotary_keys(keys, config, {.share = defaults.rotary_share});
  decoder_only_keys(keys, config, defaults.ids);
}

NameTable names_like_llama() {
  return {.outside = {{"embedding.weight", "model.embed_tokens.weight"},
                      {"head.weight", "lm_head.weight"},
                      {"decoder.final_norm.weight", "model.norm.weight"}},
          .blocks = {{"decoder", "model.layers."}},
          .modules = {{"self_attention.norm", "input_layernorm"},
                      {"self_attention.query", "self_attn.q_proj"},
                      {"self_attention.key", "self_attn.k_proj"},
                      {"self_attention.value", "self_attn.v_proj"},
                      {"self_attention.output", "self_attn.o_proj"},
                      {"self_attention.query_norm", "self_attn.q_norm"},
                      {"self_attention.key_norm", "self_attn.k_norm"},
                      {"feed_forward.norm", "post_attention_layernorm"},
                      {"feed_forward.gate", "mlp.gate_proj"},
                      {"feed_forward.up", "mlp.up_proj"},
                      {"feed_forward.down", "mlp.down_proj"}}};
}

const NameTable& llama_names(const TransformerConfig&) {
  static const NameTable kTable = names_like_llama();
  return kTable;
}

Family family_like_llama(TransformerConfig base, const std::string& architecture,
                         void (*keys)(ConfigKeys&, TransformerConfig&),
                         const NameTable& (*names)(const TransformerConfig&) = llama_names) {
  return {.name = base.family,
          .architecture = architecture,
          .base = base,
          .shapes = {.grouped_keys = true},
          .keys = keys,
          .names = names,
          .unused = {"model.layers.*.self_attn.rotary_emb.inv_freq"}};
}

// ---- What each has of its own

void llama_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(
      keys, config,
      {.ids = {.vocabulary = 32000, .bos = 1, .eos = 2}, .attention_bias = true, .feed_forward_bias = true});
}

void mistral_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(
      keys, config,
      {.ff_width = 14336, .positions = 131072, .ids = {.vocabulary = 32000, .bos = 1, .eos = 2}, .window = 4096});
  keys.also("sliding_window", nullptr);
}

// Qwen 2 and 2.5: biases on queries, keys and values, but not on the output.
void qwen2_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(keys, config,
                  {.ff_width = 22016, .positions = 32768, .ids = {.vocabulary = 151936}, .window_switch = true});
}

void qwen3_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(keys, config,
                  {.ff_width = 22016,
                   .head_width = 128,
                   .positions = 32768,
                   .ids = {.vocabulary = 151936},
                   .attention_bias = true,
                   .window_switch = true});
}

constexpr int64_t kRotationPause = 4;  // of SmolLM3's layers, each fourth does not rotate

// Reads no_rope_layers, in which 1 means that the layer rotates, or else an interval.
std::vector<int64_t> read_unrotated(ConfigReader& reader, int64_t layers) {
  std::vector<int64_t> rotates(static_cast<size_t>(layers), 1);
  const int64_t interval = reader.get_int("no_rope_layer_interval", {1, kMaxLayers}, kRotationPause);
  for (int64_t layer = interval - 1; layer < layers; layer += interval) rotates[static_cast<size_t>(layer)] = 0;
  if (reader.has("no_rope_layers")) rotates = reader.get_ints("no_rope_layers", {0, 1});
  if (static_cast<int64_t>(rotates.size()) < layers) {
    reader.wrong("no_rope_layers", "has fewer numbers than the model has layers",
                 fmt::format("{} numbers, 1 for each layer that rotates and 0 for the others", layers));
    return {};
  }
  std::vector<int64_t> unrotated;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (rotates[static_cast<size_t>(layer)] == 0) unrotated.push_back(layer);
  }
  return unrotated;
}

void smollm3_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(keys, config,
                  {.width = 2048,
                   .layers = 36,
                   .heads = 16,
                   .positions = 32768,
                   .ids = {.vocabulary = 128256, .tied_head = true, .bos = 128000, .eos = 128001},
                   .attention_bias = true,
                   .feed_forward_bias = true,
                   .window_switch = true});
  keys.known({"no_rope_layers", "no_rope_layer_interval"});
  if (keys.reads()) {
    if (!rotary_base_given(keys.reader(), "rope_theta")) config.rotary.base = 2e6;
    config.unrotated_layers = read_unrotated(keys.reader(), config.decoder_layers);
    return;
  }
  std::vector<int64_t> rotates(static_cast<size_t>(config.decoder_layers), 1);
  for (const int64_t layer : config.unrotated_layers) rotates.at(static_cast<size_t>(layer)) = 0;
  keys.also("no_rope_layers", rotates);
}

void granite_keys(ConfigKeys& keys, TransformerConfig& config) {
  constexpr double kMost = 1e6;
  keys_like_llama(
      keys, config,
      {.ids = {.vocabulary = 32000, .bos = 1, .eos = 2}, .attention_bias = true, .feed_forward_bias = true});
  keys.number("embedding_multiplier", config.embedding_scale, 1.0, -kMost, kMost);
  keys.number("residual_multiplier", config.residual_scale, 1.0, -kMost, kMost);
  keys.number("attention_multiplier", config.attention_scale, 1.0, -kMost, kMost);
  double divisor = 1.0 / config.output_scale;
  keys.number("logits_scaling", divisor, 1.0, 1.0 / kMost, kMost);
  config.output_scale = 1.0 / divisor;
}

void olmo2_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(keys, config,
                  {.norm_epsilon = 1e-5, .ids = {.vocabulary = 50304, .eos = 50279}, .attention_bias = true});
}

const NameTable& olmo2_names(const TransformerConfig&) {
  static const NameTable kTable = [] {
    NameTable table = names_like_llama();
    table.modules["self_attention.norm"] = "post_attention_layernorm";
    table.modules["feed_forward.norm"] = "post_feedforward_layernorm";
    return table;
  }();
  return kTable;
}

void phi3_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys_like_llama(keys, config,
                  {.width = 3072,
                   .ff_width = 8192,
                   .positions = 4096,
                   .norm_epsilon = 1e-5,
                   .ids = {.vocabulary = 32064, .bos = 1, .eos = 32000},
                   .rotary_share = "partial_rotary_factor"});
  keys.also("resid_pdrop", config.dropout);
  keys.also("embd_pdrop", config.dropout);
  keys.also("original_max_position_embeddings", config.max_positions);
  keys.also("sliding_window", nullptr);
  if (!keys.reads()) return;
  if (config.rotary.scaling != RotaryScaling::kNone) {
    const char* key = keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    keys.reader().wrong(key, "has a rope_type that Phi-3 reads as longrope, which is not supported",
                        "null or rope_type \"default\", as in models for 4096 tokens");
  }
}

const NameTable& phi3_names(const TransformerConfig&) {
  static const NameTable kTable = [] {
    NameTable table = names_like_llama();
    for (const char* part : {"query", "key", "value"}) {
      table.modules[std::string("self_attention.") + part] = "self_attn.qkv_proj";
    }
    for (const char* part : {"gate", "up"}) table.modules[std::string("feed_forward.") + part] = "mlp.gate_up_proj";
    table.join = Join::kBlocks;
    table.joined_gate = true;
    return table;
  }();
  return kTable;
}

}  // namespace

Family llama_family() {
  return family_like_llama(llama_base("llama"), "LlamaForCausalLM", llama_keys);
}

Family mistral_family() {
  return family_like_llama(llama_base("mistral"), "MistralForCausalLM", mistral_keys);
}

Family qwen2_family() {
  TransformerConfig base = llama_base("qwen2");
  base.projection_bias = true;
  return family_like_llama(base, "Qwen2ForCausalLM", qwen2_keys);
}

Family qwen3_family() {
  TransformerConfig base = llama_base("qwen3");
  base.query_key_norm = QueryKeyNorm::kHead;
  return family_like_llama(base, "Qwen3ForCausalLM", qwen3_keys);
}

Family smollm3_family() {
  Family family = family_like_llama(llama_base("smollm3"), "SmolLM3ForCausalLM", smollm3_keys);
  family.shapes.unrotated_interval = kRotationPause;
  return family;
}

Family granite_family() {
  return family_like_llama(llama_base("granite"), "GraniteForCausalLM", granite_keys);
}

Family olmo2_family() {
  TransformerConfig base = llama_base("olmo2");
  base.norm_epsilon = 1e-5;
  base.norm_place = NormPlace::kAfterSublayer;
  base.query_key_norm = QueryKeyNorm::kWidth;
  return family_like_llama(base, "Olmo2ForCausalLM", olmo2_keys, olmo2_names);
}

Family phi3_family() {
  TransformerConfig base = llama_base("phi3");
  base.norm_epsilon = 1e-5;
  return family_like_llama(base, "Phi3ForCausalLM", phi3_keys, phi3_names);
}

}  // namespace draftsmith::model
