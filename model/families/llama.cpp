// Llama 1 to 3 and models of the same layout (TinyLlama, OpenLLaMA). Keys and defaults are those of Transformers 5.23's
// LlamaConfig.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

TransformerConfig llama_base() {
  TransformerConfig config = decoder_only("llama");
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

void llama_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, 4096);
  keys.integer("intermediate_size", config.ff_width, {1, kMaxWidth}, 11008);
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, 32);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, 32);
  config.kv_heads = config.key_value_heads();
  keys.integer("num_key_value_heads", config.kv_heads, {1, kMaxHeads}, config.heads);
  keys.integer("head_dim", config.head_width, {1, kMaxWidth}, std::max<int64_t>(1, config.width / config.heads));
  if (keys.reads()) check_heads(keys.reader(), config);
  keys.activation("hidden_act", config.activation, "silu");
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, 2048);
  keys.number("rms_norm_eps", config.norm_epsilon, 1e-6, 0.0, 1.0);
  keys.flag("attention_bias", config.projection_bias, false);
  config.output_bias = config.projection_bias;
  keys.flag("mlp_bias", config.feed_forward_bias, false);
  keys.number("attention_dropout", config.dropout, 0.0, 0.0, 0.999);
  rotary_keys(keys, config);
  decoder_only_keys(keys, config, {.vocabulary = 32000, .bos = 1, .eos = 2});
}

const NameTable& llama_names(const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "model.embed_tokens.weight"},
                                               {"head.weight", "lm_head.weight"},
                                               {"decoder.final_norm.weight", "model.norm.weight"}},
                                   .blocks = {{"decoder", "model.layers."}},
                                   .modules = {{"self_attention.norm", "input_layernorm"},
                                               {"self_attention.query", "self_attn.q_proj"},
                                               {"self_attention.key", "self_attn.k_proj"},
                                               {"self_attention.value", "self_attn.v_proj"},
                                               {"self_attention.output", "self_attn.o_proj"},
                                               {"feed_forward.norm", "post_attention_layernorm"},
                                               {"feed_forward.gate", "mlp.gate_proj"},
                                               {"feed_forward.up", "mlp.up_proj"},
                                               {"feed_forward.down", "mlp.down_proj"}}};
  return kTable;
}

}  // namespace

Family llama_family() {
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .base = llama_base(),
          .shapes = {.grouped_keys = true},
          .keys = llama_keys,
          .names = llama_names,
          .unused = {"model.layers.*.self_attn.rotary_emb.inv_freq"}};
}

}  // namespace draftsmith::model
