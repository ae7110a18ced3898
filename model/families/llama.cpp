// Llama 1 to 3 and models of the same layout (TinyLlama, OpenLLaMA). Keys and defaults are those of Transformers 5.23's
// LlamaConfig.
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace llama {
namespace {

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

TransformerConfig base() {
  TransformerConfig config = decoder_only("llama");
  config.activation = Activation::kSilu;
  config.gated = true;
  config.positions = Positions::kRotary;
  return config;
}

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config = base();
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 32000);
  config.width = reader.get_int("hidden_size", {1, kMaxWidth}, 4096);
  config.heads = reader.get_int("num_attention_heads", {1, kMaxHeads}, 32);
  config.kv_heads = reader.get_int("num_key_value_heads", {1, kMaxHeads}, config.heads);
  config.head_width = reader.get_int("head_dim", {1, kMaxWidth}, std::max<int64_t>(1, config.width / config.heads));
  config.ff_width = reader.get_int("intermediate_size", {1, kMaxWidth}, 11008);
  config.decoder_layers = reader.get_int("num_hidden_layers", {1, kMaxLayers}, 32);
  config.max_positions = reader.get_int("max_position_embeddings", {1, kMaxPositions}, 2048);
  check_heads(reader, config);
  config.norm_epsilon = reader.number("rms_norm_eps", 1e-6, 0.0, 1.0);
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.projection_bias = reader.get_bool("attention_bias", false);
  config.output_bias = config.projection_bias;
  config.feed_forward_bias = reader.get_bool("mlp_bias", false);
  config.rotary = read_rotary(reader, "rope_theta", config.head_width);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("attention_dropout", 0.0, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", false);
  read_decoder_only(reader, config, {.bos = 1, .eos = 2});
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  nlohmann::ordered_json out;
  out["hidden_size"] = config.width;
  out["intermediate_size"] = config.ff_width;
  out["num_hidden_layers"] = config.decoder_layers;
  out["num_attention_heads"] = config.heads;
  out["num_key_value_heads"] = config.key_value_heads();
  out["head_dim"] = config.head_width;
  out["hidden_act"] = activation_name(config.activation);
  out["max_position_embeddings"] = config.max_positions;
  out["rms_norm_eps"] = config.norm_epsilon;
  out["attention_bias"] = config.projection_bias;
  out["mlp_bias"] = config.feed_forward_bias;
  out["attention_dropout"] = config.dropout;
  out["rope_parameters"] = rotary_json(config.rotary);
  write_decoder_only(config, out);
  return out;
}

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "model.embed_tokens.weight"},
                                               {"head.weight", "lm_head.weight"},
                                               {"decoder.final_norm.weight", "model.norm.weight"}},
                                   .blocks = "model.layers.",
                                   .modules = {{"self_attention.norm", "input_layernorm"},
                                               {"self_attention.query", "self_attn.q_proj"},
                                               {"self_attention.key", "self_attn.k_proj"},
                                               {"self_attention.value", "self_attn.v_proj"},
                                               {"self_attention.output", "self_attn.o_proj"},
                                               {"feed_forward.norm", "post_attention_layernorm"},
                                               {"feed_forward.gate", "mlp.gate_proj"},
                                               {"feed_forward.up", "mlp.up_proj"},
                                               {"feed_forward.down", "mlp.down_proj"}}};
  return stored_by(kTable, parameter);
}

}  // namespace
}  // namespace llama

Family llama_family() {
  using namespace llama;
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .base = base(),
          .shapes = {.grouped_keys = true},
          .read_config = read_config,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "model.embed_tokens.weight",
          .stored_head = "lm_head.weight",
          .unused = {"model.layers.*.self_attn.rotary_emb.inv_freq"}};
}

}  // namespace draftsmith::model
