// BLOOM: ALiBi, normed embeddings, query, key and value joined head by head. Keys and defaults are those of
// Transformers 5.23's BloomConfig.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kFeedForwardFactor = 4;  // config.json has no key for another

TransformerConfig bloom_base() {
  TransformerConfig config = decoder_only_with_biases("bloom");
  config.activation = Activation::kGeluTanh;
  config.positions = Positions::kAlibi;
  config.embedding_norm = true;
  return config;
}

void bloom_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer(keys.has("n_embed") ? "n_embed" : "hidden_size", config.width, {1, kMaxWidth}, 64);
  const char* heads = keys.has("num_attention_heads") ? "num_attention_heads" : "n_head";
  keys.integer(heads, config.heads, {1, kMaxHeads}, 8);
  read_split_width(keys, config, heads);
  config.ff_width = kFeedForwardFactor * config.width;
  const char* layers = keys.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer";
  keys.integer(layers, config.decoder_layers, {1, kMaxLayers}, 2);
  keys.number("layer_norm_epsilon", config.norm_epsilon, 1e-5, 0.0, 1.0);
  keys.number("hidden_dropout", config.dropout, 0.0, 0.0, 0.999);
  keys.also("attention_dropout", config.dropout);
  keys.fixed("apply_residual_connection_post_layernorm", false);
  keys.also("slow_but_exact", false);
  keys.also("pretraining_tp", 1);
  keys.known({"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "skip_bias_add",
              "skip_bias_add_qkv", "offset_alibi", "seq_length", "pretraining_pp"});
  decoder_only_keys(keys, config, {.vocabulary = 250880, .tied_head = true, .bos = 1, .eos = 2});
}

const NameTable& bloom_names(const TransformerConfig&) {
  static const NameTable kTable = {
      .outside = {{"embedding.weight", "transformer.word_embeddings.weight"},
                  {"decoder.embedding_norm.weight", "transformer.word_embeddings_layernorm.weight"},
                  {"decoder.embedding_norm.bias", "transformer.word_embeddings_layernorm.bias"},
                  {"head.weight", "lm_head.weight"},
                  {"decoder.final_norm.weight", "transformer.ln_f.weight"},
                  {"decoder.final_norm.bias", "transformer.ln_f.bias"}},
      .blocks = {{"decoder", "transformer.h."}},
      .modules = {{"self_attention.norm", "input_layernorm"},
                  {"self_attention.query", "self_attention.query_key_value"},
                  {"self_attention.key", "self_attention.query_key_value"},
                  {"self_attention.value", "self_attention.query_key_value"},
                  {"self_attention.output", "self_attention.dense"},
                  {"feed_forward.norm", "post_attention_layernorm"},
                  {"feed_forward.up", "mlp.dense_h_to_4h"},
                  {"feed_forward.down", "mlp.dense_4h_to_h"}},
      .join = Join::kHeads};
  return kTable;
}

}  // namespace

Family bloom_family() {
  return {.name = "bloom",
          .architecture = "BloomForCausalLM",
          .base = bloom_base(),
          .shapes = {.heads_make_width = true, .ff_factor = kFeedForwardFactor},
          .keys = bloom_keys,
          .names = bloom_names,
          .optional_prefix = "transformer."};
}

}  // namespace draftsmith::model
