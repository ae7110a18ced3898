// OPT: learned positions that begin at row 2 of their table, ReLU, layer norms before sublayers, biases. Keys and
// defaults are those of Transformers 5.23's OPTConfig. opt-350m, which norms after sublayers, is refused.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

TransformerConfig opt_base() {
  TransformerConfig config = decoder_only_with_biases("opt");
  config.activation = Activation::kRelu;
  config.positions = Positions::kLearned;
  config.position_offset = 2;
  return config;
}

void opt_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, 768);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, 12);
  read_split_width(keys, config, "num_attention_heads");
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer("ffn_dim", config.ff_width, {1, kMaxWidth}, 3072);
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, 2048);
  keys.activation("activation_function", config.activation, "relu");
  keys.number("dropout", config.dropout, 0.1, 0.0, 0.999);
  keys.also("attention_dropout", 0.0);
  keys.also("layerdrop", 0.0);
  int64_t projected = config.width;
  keys.integer("word_embed_proj_dim", projected, {1, kMaxWidth}, config.width);
  if (projected != config.width) {
    keys.reader().wrong("word_embed_proj_dim", "projects the embeddings (opt-350m does), which is not supported",
                        fmt::format("hidden_size, {}; all other sizes of OPT have it", config.width));
  }
  keys.fixed("do_layer_norm_before", true);
  keys.fixed("layer_norm_elementwise_affine", true);
  bool no_final_norm = !config.final_norm;
  keys.flag("_remove_final_layer_norm", no_final_norm, false);
  config.final_norm = !no_final_norm;
  keys.flag("enable_bias", config.projection_bias, true);
  config.output_bias = config.feed_forward_bias = config.projection_bias;
  decoder_only_keys(keys, config, {.vocabulary = 50272, .tied_head = true, .bos = 2, .eos = 2});
  keys.number("init_std", config.initializer_range, 0.02, 0.0, 1e3);
}

const NameTable& opt_names(const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "model.decoder.embed_tokens.weight"},
                                               {"decoder.positions.weight", "model.decoder.embed_positions.weight"},
                                               {"head.weight", "lm_head.weight"},
                                               {"decoder.final_norm.weight", "model.decoder.final_layer_norm.weight"},
                                               {"decoder.final_norm.bias", "model.decoder.final_layer_norm.bias"}},
                                   .blocks = {{"decoder", "model.decoder.layers."}},
                                   .modules = {{"self_attention.norm", "self_attn_layer_norm"},
                                               {"self_attention.query", "self_attn.q_proj"},
                                               {"self_attention.key", "self_attn.k_proj"},
                                               {"self_attention.value", "self_attn.v_proj"},
                                               {"self_attention.output", "self_attn.out_proj"},
                                               {"feed_forward.norm", "final_layer_norm"},
                                               {"feed_forward.up", "fc1"},
                                               {"feed_forward.down", "fc2"}}};
  return kTable;
}

}  // namespace

Family opt_family() {
  return {.name = "opt",
          .architecture = "OPTForCausalLM",
          .base = opt_base(),
          .shapes = {.heads_make_width = true},
          .keys = opt_keys,
          .names = opt_names,
          .unused = {"model.decoder.version"},
          // Directories of the Hub hold the base model alone.
          .optional_prefix = "model."};
}

}  // namespace draftsmith::model
