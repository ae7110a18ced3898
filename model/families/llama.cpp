// Llama 1 to 3, TinyLlama and OpenLLaMA, and the families that are Llama but for a few keys: Mistral, Qwen 2 to 3,
// SmolLM3, Granite 3, OLMo-2, Phi-3, Gemma 2 and 3. Keys and defaults are those of Transformers 5.23's configurations.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// Biases that have keys in config.json: none, those of attention's four projections, the feed-forward layers' too.
enum BiasKeys { kNoBias, kSomeBias, kAllBias };

// The layers with windows of attention.
struct WindowKeys {
  bool flag = false;  // sliding_window counts only with use_sliding_window
  // The window of a config.json without sliding_window, 0: none. Absent: the family has no windows of all layers.
  std::optional<int64_t> usual = {};
  int64_t interval = 0;  // all but one of so many layers have windows; 0: none or all have
};

// The values of a config.json without any, and which keys a family has.
struct LlamaLike {
  const char* name;
  const char* architecture;  // before "ForCausalLM"
  int64_t width, ff_width, layers, heads;
  int64_t head_width;  // 0: the width divided by the heads
  int64_t positions;
  double norm_epsilon;
  DecoderOnlyDefaults ids;
  BiasKeys biases = kNoBias;
  WindowKeys windows = {};
};

const LlamaLike kLlamaLikes[] = {
    {"llama", "Llama", 4096, 11008, 32, 32, 0, 2048, 1e-6, {32000, false, 1, 2}, kAllBias},
    {"mistral", "Mistral", 4096, 14336, 32, 32, 0, 131072, 1e-6, {32000, false, 1, 2}, kNoBias, {.usual = 4096}},
    {"qwen2", "Qwen2", 4096, 22016, 32, 32, 0, 32768, 1e-6, {151936}, kNoBias, {.flag = true}},
    {"qwen3", "Qwen3", 4096, 22016, 32, 32, 128, 32768, 1e-6, {151936}, kSomeBias, {.flag = true}},
    {"smollm3", "SmolLM3", 2048, 11008, 36, 16, 0, 32768, 1e-6, {128256, true, 128000, 128001}, kAllBias, {true}},
    {"granite", "Granite", 4096, 11008, 32, 32, 0, 2048, 1e-6, {32000, false, 1, 2}, kAllBias},
    {"olmo2", "Olmo2", 4096, 11008, 32, 32, 0, 2048, 1e-5, {50304, false, {}, 50279}, kSomeBias},
    {"phi3", "Phi3", 3072, 8192, 32, 32, 0, 4096, 1e-5, {32064, false, 1, 32000}, kNoBias, {.usual = 0}},
    {"gemma2", "Gemma2", 2304, 9216, 26, 8, 256, 8192, 1e-6, {256000, true, 2, 1}, kSomeBias, {.interval = 2}},
    {"gemma3_text", "Gemma3", 2304, 9216, 26, 8, 256, 131072, 1e-6, {262208, true, 2, 1}, kSomeBias, {.interval = 6}}};

bool is_gemma(const TransformerConfig& config) {
  return config.norm == Norm::kRmsPlusOne;
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

// Reads the window of all layers. One that no text within max_positions outgrows is none.
void read_window(ConfigReader& reader, TransformerConfig& config, std::optional<int64_t> usual) {
  if (reader.says_null("sliding_window")) return;
  const int64_t window = reader.get_int("sliding_window", {1, kMaxPositions}, usual.value_or(0));
  if (window == 0 || window >= config.max_positions) return;
  if (!usual) {
    reader.wrong("sliding_window", "cuts attention, which this family does not do in Transformers",
                 fmt::format("null, or at least {} (max_position_embeddings)", config.max_positions));
  }
  config.window = window;
  for (int64_t layer = 0; layer < config.decoder_layers; ++layer) config.window_layers.push_back(layer);
}

void attention_kind_keys(ConfigKeys& keys, TransformerConfig& config, const LlamaLike& family) {
  keys.known({"sliding_window", "max_window_layers", "layer_types"});
  if (family.windows.flag) keys.fixed("use_sliding_window", false);
  if (family.windows.usual)
    keys.also("sliding_window", config.window > 0 ? nlohmann::ordered_json(config.window) : nullptr);
  if (!keys.reads()) return;
  if (!family.windows.flag) read_window(keys.reader(), config, family.windows.usual);
  if (!keys.has("layer_types")) return;
  const nlohmann::json& types = keys.reader().at("layer_types");
  if (std::ranges::any_of(types, [](const nlohmann::json& type) { return type != kFullAttention; })) {
    keys.reader().wrong("layer_types", "has layers with attention of another kind", "full_attention for each layer");
  }
}

// Reads the layers with windows: layer_types, or else all but one of an interval.
std::vector<int64_t> read_window_layers(ConfigReader& reader, const TransformerConfig& config, int64_t interval) {
  if (config.family != "gemma2") interval = reader.get_int("sliding_window_pattern", {1, kMaxLayers}, interval);
  if (!reader.has("layer_types")) return layers_with_windows(config.decoder_layers, interval);
  const nlohmann::json& types = reader.at("layer_types");
  const auto layers = static_cast<size_t>(config.decoder_layers);
  const auto known = [](const nlohmann::json& type) { return type == kSlidingAttention || type == kFullAttention; };
  if (!types.is_array() || types.size() != layers || !std::ranges::all_of(types, known)) {
    reader.wrong("layer_types", "does not name the kind of each layer",
                 fmt::format("{} times {} or {}", layers, kSlidingAttention, kFullAttention));
    return {};
  }
  std::vector<int64_t> windowed;
  for (size_t layer = 0; layer < layers; ++layer) {
    if (types[layer] == kSlidingAttention) windowed.push_back(static_cast<int64_t>(layer));
  }
  return windowed;
}

void gemma_window_keys(ConfigKeys& keys, TransformerConfig& config, int64_t interval) {
  std::vector<std::string> types(static_cast<size_t>(config.decoder_layers), kFullAttention);
  for (const int64_t layer : config.window_layers) types.at(static_cast<size_t>(layer)) = kSlidingAttention;
  keys.also("layer_types", types);
  keys.integer("sliding_window", config.window, {1, kMaxPositions}, config.window);
  keys.known({"sliding_window_pattern", "_sliding_window_pattern"});
  if (!keys.reads()) return;
  config.window_layers = read_window_layers(keys.reader(), config, interval);
  if (keys.reader().says_null("sliding_window") && !config.window_layers.empty()) {
    keys.reader().wrong("sliding_window", "is null, and layers have windows", "a number of tokens");
  }
}

// Lists a soft cap: null is none, an absent one is the family's.
void cap_key(ConfigKeys& keys, const char* key, double& cap) {
  std::optional<double> value;
  if (!keys.reads() && cap > 0) value = cap;
  keys.number(key, value, 1e-3, 1e6);
  if (!keys.reads()) return;
  const bool absent = !keys.has(key) && !keys.reader().says_null(key);
  cap = value.value_or(absent ? cap : 0.0);
}

void gemma_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.known({"hidden_act", "cache_implementation"});  // which Transformers does not read here
  keys.fixed("use_bidirectional_attention", false);
  int64_t scaled = std::llround(1.0 / (config.attention_scale * config.attention_scale));
  keys.integer("query_pre_attn_scalar", scaled, {1, kMaxPositions}, 256);
  cap_key(keys, "final_logit_softcapping", config.logit_cap);
  if (config.family == "gemma2") cap_key(keys, "attn_logit_softcapping", config.score_cap);
  if (!keys.reads()) return;
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(scaled));
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
}

// Reads no_rope_layers, in which 1 means that the layer rotates, or else an interval.
std::vector<int64_t> read_unrotated(ConfigReader& reader, int64_t layers, int64_t usual_interval) {
  std::vector<int64_t> rotates(static_cast<size_t>(layers), 1);
  const int64_t interval = reader.get_int("no_rope_layer_interval", {1, kMaxLayers}, usual_interval);
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

constexpr int64_t kRotationPause = 4;  // of SmolLM3's layers, each fourth does not rotate

void smollm3_keys(ConfigKeys& keys, TransformerConfig& config) {
  std::vector<int64_t> rotates(static_cast<size_t>(config.decoder_layers), 1);
  for (const int64_t layer : config.unrotated_layers) rotates.at(static_cast<size_t>(layer)) = 0;
  keys.also("no_rope_layers", rotates);
  keys.known({"no_rope_layer_interval"});
  if (!keys.reads()) return;
  config.unrotated_layers = read_unrotated(keys.reader(), config.decoder_layers, kRotationPause);
}

void granite_keys(ConfigKeys& keys, TransformerConfig& config) {
  constexpr double kMost = 1e6;
  keys.number("embedding_multiplier", config.embedding_scale, 1.0, -kMost, kMost);
  keys.number("residual_multiplier", config.residual_scale, 1.0, -kMost, kMost);
  keys.number("attention_multiplier", config.attention_scale, 1.0, -kMost, kMost);
  double divisor = 1.0 / config.output_scale;
  keys.number("logits_scaling", divisor, 1.0, 1.0 / kMost, kMost);
  config.output_scale = 1.0 / divisor;
}

void phi3_keys(ConfigKeys& keys, const TransformerConfig& config) {
  keys.also("resid_pdrop", config.dropout);
  keys.also("embd_pdrop", config.dropout);
  keys.also("original_max_position_embeddings", config.max_positions);
  if (!keys.reads() || config.rotary.scaling == RotaryScaling::kNone) return;
  keys.reader().wrong(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling",
                      "has a rope_type that Phi-3 reads as longrope, which is not supported",
                      "null or rope_type \"default\", as in models for 4096 tokens");
}

void llama_keys(ConfigKeys& keys, TransformerConfig& config) {
  const LlamaLike& family = *std::ranges::find(kLlamaLikes, config.family, &LlamaLike::name);
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, family.width);
  keys.integer("intermediate_size", config.ff_width, {1, kMaxWidth}, family.ff_width);
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, family.layers);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, family.heads);
  config.kv_heads = config.key_value_heads();
  keys.integer("num_key_value_heads", config.kv_heads, {1, kMaxHeads}, is_gemma(config) ? 4 : config.heads);
  const int64_t share = std::max<int64_t>(1, config.width / config.heads);
  keys.integer("head_dim", config.head_width, {1, kMaxWidth}, family.head_width > 0 ? family.head_width : share);
  if (keys.reads()) check_heads(keys.reader(), config);
  if (!is_gemma(config)) {
    keys.activation("hidden_act", config.activation, "silu");
  } else if (!keys.reads() && config.activation == Activation::kGeluTanh) {
    keys.also("hidden_activation", "gelu_pytorch_tanh");  // the name that other programs know
  } else {
    keys.activation("hidden_activation", config.activation, "gelu_pytorch_tanh");
  }
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, family.positions);
  keys.number("rms_norm_eps", config.norm_epsilon, family.norm_epsilon, 0.0, 1.0);
  if (family.biases != kNoBias) {
    keys.flag("attention_bias", config.projection_bias, false);
    config.output_bias = config.projection_bias;
  }
  if (family.biases == kAllBias) keys.flag("mlp_bias", config.feed_forward_bias, false);
  keys.number("attention_dropout", config.dropout, 0.0, 0.0, 0.999);
  if (is_gemma(config)) {
    gemma_window_keys(keys, config, family.windows.interval);
  } else {
    attention_kind_keys(keys, config, family);
  }
  const double base = config.family == "smollm3" ? 2e6 : 1e4;
  if (config.window_rotary) {
    rotary_keys_by_window(keys, config);
  } else {
    const char* partial = config.family == "phi3" ? "partial_rotary_factor" : nullptr;
    rotary_keys(keys, config, {.share = partial, .base_default = base});
  }
  decoder_only_keys(keys, config, family.ids);
  if (config.family == "smollm3") smollm3_keys(keys, config);
  if (config.family == "granite") granite_keys(keys, config);
  if (config.family == "phi3") phi3_keys(keys, config);
  if (is_gemma(config)) gemma_keys(keys, config);
}

NameTable make_llama_names(bool norms_behind, bool joined) {
  return {.outside = {{"embedding.weight", "model.embed_tokens.weight"},
                      {"head.weight", "lm_head.weight"},
                      {"decoder.final_norm.weight", "model.norm.weight"}},
          .blocks = {{"decoder", "model.layers."}},
          .modules = {{"self_attention.norm", norms_behind ? "post_attention_layernorm" : "input_layernorm"},
                      {"self_attention.query", joined ? "self_attn.qkv_proj" : "self_attn.q_proj"},
                      {"self_attention.key", joined ? "self_attn.qkv_proj" : "self_attn.k_proj"},
                      {"self_attention.value", joined ? "self_attn.qkv_proj" : "self_attn.v_proj"},
                      {"self_attention.output", "self_attn.o_proj"},
                      {"self_attention.query_norm", "self_attn.q_norm"},
                      {"self_attention.key_norm", "self_attn.k_norm"},
                      {"feed_forward.norm", norms_behind ? "post_feedforward_layernorm" : "post_attention_layernorm"},
                      {"feed_forward.gate", joined ? "mlp.gate_up_proj" : "mlp.gate_proj"},
                      {"feed_forward.up", joined ? "mlp.gate_up_proj" : "mlp.up_proj"},
                      {"feed_forward.down", "mlp.down_proj"}},
          .join = joined ? Join::kBlocks : Join::kNone,
          .joined_gate = joined};
}

const NameTable& llama_names(const TransformerConfig& config) {
  static const NameTable kTable = make_llama_names(false, false);
  static const NameTable kNormsBehind = make_llama_names(true, false);
  static const NameTable kJoined = make_llama_names(false, true);
  static const NameTable kNormsAround = [] {
    NameTable table = make_llama_names(false, false);
    table.modules["self_attention.output_norm"] = "post_attention_layernorm";
    table.modules["feed_forward.norm"] = "pre_feedforward_layernorm";
    table.modules["feed_forward.output_norm"] = "post_feedforward_layernorm";
    return table;
  }();
  if (config.norm_place == NormPlace::kAround) return kNormsAround;
  if (config.family == "phi3") return kJoined;
  return config.norm_place == NormPlace::kAfterSublayer ? kNormsBehind : kTable;
}

TransformerConfig llama_base(const LlamaLike& family) {
  const std::string_view name = family.name;
  TransformerConfig config = decoder_only(family.name);
  config.activation = Activation::kSilu;
  config.gated = true;
  config.positions = Positions::kRotary;
  config.norm_epsilon = family.norm_epsilon;
  config.projection_bias = name == "qwen2";
  if (name == "qwen3") config.query_key_norm = QueryKeyNorm::kHead;
  if (name == "olmo2") config.query_key_norm = QueryKeyNorm::kWidth;
  if (name == "olmo2") config.norm_place = NormPlace::kAfterSublayer;
  if (!name.starts_with("gemma")) return config;
  config.activation = Activation::kGeluTanh;
  config.norm = Norm::kRmsPlusOne;
  config.norm_place = NormPlace::kAround;
  config.rounds_embedding_scale = true;
  config.window = 4096;
  if (name == "gemma2") {
    config.score_cap = 50.0;
    config.logit_cap = 30.0;
  } else {
    config.query_key_norm = QueryKeyNorm::kHead;
    config.rotary.base = 1e6;
    config.window_rotary = RotaryConfig();
  }
  return config;
}

}  // namespace

std::vector<Family> llama_families() {
  std::vector<Family> families;
  for (const LlamaLike& family : kLlamaLikes) {
    const bool pauses = family.name == std::string_view("smollm3");
    const TransformerConfig base = llama_base(family);
    families.push_back({.name = family.name,
                        .architecture = std::string(family.architecture) + "ForCausalLM",
                        .base = base,
                        .shapes = {.grouped_keys = true,
                                   .unrotated_interval = pauses ? kRotationPause : 0,
                                   .window_interval = family.windows.interval,
                                   .scaled_embedding = is_gemma(base)},
                        .keys = llama_keys,
                        .names = llama_names,
                        .unused = {"model.layers.*.self_attn.rotary_emb.inv_freq"}});
  }
  return families;
}

}  // namespace draftsmith::model
