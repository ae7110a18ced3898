// GPT-NeoX (Pythia): partly rotated heads, attention and feed-forward side by side or one after the other, query, key
// and value joined head by head. Keys and defaults are those of Transformers 5.23's GPTNeoXConfig.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// Rotated numbers of a head: the share under rotary_pct or in rope_parameters.
int64_t rotary_width(ConfigReader& reader, const TransformerConfig& config) {
  double share = reader.number("rotary_pct", 0.25, 0.0, 1.0);
  if (reader.has("rope_parameters") && reader.at("rope_parameters").is_object()) {
    ConfigReader inner = reader.within(reader.at("rope_parameters"));
    share = inner.number("partial_rotary_factor", share, 0.0, 1.0);
  }
  const auto width = static_cast<int64_t>(static_cast<double>(config.head_width) * share);
  if (width < 2 || width % 2 != 0) {
    reader.wrong("rotary_pct", "leaves no pairs to rotate",
                 fmt::format("a share of {} that is an even number of at least 2", config.head_width));
    return 2;
  }
  return width;
}

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
  if (keys.reads()) {
    config.rotary = read_rotary(keys.reader(), "rotary_emb_base", rotary_width(keys.reader(), config));
  } else {
    nlohmann::ordered_json rotary = rotary_json(config.rotary);
    rotary["partial_rotary_factor"] = static_cast<double>(config.rotary.width) / static_cast<double>(config.head_width);
    keys.also("rotary_pct", rotary["partial_rotary_factor"]);
    keys.also("rotary_emb_base", config.rotary.base);
    keys.also("rope_parameters", rotary);
  }
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
