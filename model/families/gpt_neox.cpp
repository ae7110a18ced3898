// GPT-NeoX (Pythia): partly rotated heads, attention and feed-forward side by side or one after the other, query, key
// and value joined head by head. Keys and defaults are those of Transformers 5.23's GPTNeoXConfig.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

TransformerConfig gpt_neox_base() {
  TransformerConfig config = decoder_only_with_biases("gpt_neox");
  config.activation = Activation::kGelu;
  config.positions = Positions::kRotary;
  config.parallel_residual = true;
  return config;
}

void gpt_neox_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, 6144);
  keys.integer("intermediate_size", config.ff_width, {1, kMaxWidth}, 24576);
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, 44);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, 64);
  read_split_width(keys, config, "num_attention_heads");
  keys.activation("hidden_act", config.activation, "gelu");
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, 2048);
  keys.number("layer_norm_eps", config.norm_epsilon, 1e-5, 0.0, 1.0);
  keys.flag("attention_bias", config.projection_bias, true);
  config.output_bias = config.projection_bias;
  keys.flag("use_parallel_residual", config.parallel_residual, true);
  keys.number("hidden_dropout", config.dropout, 0.0, 0.0, 0.999);
  keys.also("attention_dropout", config.dropout);
  rotary_keys(keys, config, {.base = "rotary_emb_base", .share = "rotary_pct", .share_default = 0.25});
  decoder_only_keys(keys, config, {.vocabulary = 50432, .bos = 0, .eos = 2});
}

const NameTable& gpt_neox_names(const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "gpt_neox.embed_in.weight"},
                                               {"head.weight", "embed_out.weight"},
                                               {"decoder.final_norm.weight", "gpt_neox.final_layer_norm.weight"},
                                               {"decoder.final_norm.bias", "gpt_neox.final_layer_norm.bias"}},
                                   .blocks = {{"decoder", "gpt_neox.layers."}},
                                   .modules = {{"self_attention.norm", "input_layernorm"},
                                               {"self_attention.query", "attention.query_key_value"},
                                               {"self_attention.key", "attention.query_key_value"},
                                               {"self_attention.value", "attention.query_key_value"},
                                               {"self_attention.output", "attention.dense"},
                                               {"feed_forward.norm", "post_attention_layernorm"},
                                               {"feed_forward.up", "mlp.dense_h_to_4h"},
                                               {"feed_forward.down", "mlp.dense_4h_to_h"}},
                                   .join = Join::kHeads};
  return kTable;
}

}  // namespace

Family gpt_neox_family() {
  return {.name = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .base = gpt_neox_base(),
          .shapes = {.heads_make_width = true},
          .keys = gpt_neox_keys,
          .names = gpt_neox_names,
          // Masks and frequencies that older versions kept as buffers.
          .unused = {"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
                     "gpt_neox.layers.*.attention.rotary_emb.inv_freq"}};
}

}  // namespace draftsmith::model
