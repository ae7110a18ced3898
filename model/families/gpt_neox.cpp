// GPT-NeoX (Pythia): partly rotated heads, attention and feed-forward side by side or one after the other, query, key
// and value joined head by head. Keys and defaults are those of Transformers 5.23's GPTNeoXConfig.
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace gpt_neox {
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

TransformerConfig base() {
  TransformerConfig config = decoder_only_with_biases("gpt_neox");
  config.activation = Activation::kGelu;
  config.positions = Positions::kRotary;
  config.parallel_residual = true;
  return config;
}

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config = base();
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 50432);
  config.width = reader.get_int("hidden_size", {1, kMaxWidth}, 6144);
  config.heads = reader.get_int("num_attention_heads", {1, kMaxHeads}, 64);
  config.head_width = read_split_width(reader, config, "num_attention_heads", "hidden_size");
  config.ff_width = reader.get_int("intermediate_size", {1, kMaxWidth}, 24576);
  config.decoder_layers = reader.get_int("num_hidden_layers", {1, kMaxLayers}, 44);
  config.max_positions = reader.get_int("max_position_embeddings", {1, kMaxPositions}, 2048);
  config.norm_epsilon = reader.number("layer_norm_eps", 1e-5, 0.0, 1.0);
  config.activation = read_activation(reader, "hidden_act", "gelu");
  config.projection_bias = config.output_bias = reader.get_bool("attention_bias", true);
  config.parallel_residual = reader.get_bool("use_parallel_residual", true);
  config.rotary = read_rotary(reader, "rotary_emb_base", rotary_width(reader, config));
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("hidden_dropout", 0.0, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", false);
  read_decoder_only(reader, config, {.bos = 0, .eos = 2});
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  const double share = static_cast<double>(config.rotary.width) / static_cast<double>(config.head_width);
  nlohmann::ordered_json out;
  out["hidden_size"] = config.width;
  out["intermediate_size"] = config.ff_width;
  out["num_hidden_layers"] = config.decoder_layers;
  out["num_attention_heads"] = config.heads;
  out["hidden_act"] = activation_name(config.activation);
  out["max_position_embeddings"] = config.max_positions;
  out["layer_norm_eps"] = config.norm_epsilon;
  out["attention_bias"] = config.projection_bias;
  out["use_parallel_residual"] = config.parallel_residual;
  out["hidden_dropout"] = config.dropout;
  out["attention_dropout"] = config.dropout;
  out["rotary_pct"] = share;
  out["rotary_emb_base"] = config.rotary.base;
  out["rope_parameters"] = rotary_json(config.rotary);
  out["rope_parameters"]["partial_rotary_factor"] = share;
  write_decoder_only(config, out);
  return out;
}

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "gpt_neox.embed_in.weight"},
                                               {"head.weight", "embed_out.weight"},
                                               {"decoder.final_norm.weight", "gpt_neox.final_layer_norm.weight"},
                                               {"decoder.final_norm.bias", "gpt_neox.final_layer_norm.bias"}},
                                   .blocks = "gpt_neox.layers.",
                                   .modules = {{"self_attention.norm", "input_layernorm"},
                                               {"self_attention.query", "attention.query_key_value"},
                                               {"self_attention.key", "attention.query_key_value"},
                                               {"self_attention.value", "attention.query_key_value"},
                                               {"self_attention.output", "attention.dense"},
                                               {"feed_forward.norm", "post_attention_layernorm"},
                                               {"feed_forward.up", "mlp.dense_h_to_4h"},
                                               {"feed_forward.down", "mlp.dense_4h_to_h"}},
                                   .join = Join::kHeads};
  return stored_by(kTable, parameter);
}

}  // namespace
}  // namespace gpt_neox

Family gpt_neox_family() {
  using namespace gpt_neox;
  return {.name = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .base = base(),
          .shapes = {.heads_make_width = true},
          .read_config = read_config,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "gpt_neox.embed_in.weight",
          .stored_head = "embed_out.weight",
          // Masks and frequencies that older versions kept as buffers.
          .unused = {"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
                     "gpt_neox.layers.*.attention.rotary_emb.inv_freq"}};
}

}  // namespace draftsmith::model
