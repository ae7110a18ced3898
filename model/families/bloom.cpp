// BLOOM: ALiBi, normed embeddings, query, key and value joined head by head. Keys and defaults are those of
// Transformers 5.23's BloomConfig.
#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace bloom {
namespace {

constexpr int64_t kFeedForwardFactor = 4;  // config.json has no key for another

TransformerConfig base() {
  TransformerConfig config = decoder_only_with_biases("bloom");
  config.activation = Activation::kGeluTanh;
  config.positions = Positions::kAlibi;
  config.embedding_norm = true;
  return config;
}

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config = base();
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 250880);
  const char* width = reader.has("n_embed") ? "n_embed" : "hidden_size";
  config.width = reader.get_int(width, {1, kMaxWidth}, 64);
  const char* heads = reader.has("num_attention_heads") ? "num_attention_heads" : "n_head";
  config.heads = reader.get_int(heads, {1, kMaxHeads}, 8);
  config.head_width = read_split_width(reader, config, heads, "the width");
  config.ff_width = kFeedForwardFactor * config.width;
  config.decoder_layers =
      reader.get_int(reader.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer", {1, kMaxLayers}, 2);
  config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0.0, 1.0);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("hidden_dropout", 0.0, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", true);
  read_decoder_only(reader, config, {.bos = 1, .eos = 2});
  if (reader.get_bool("apply_residual_connection_post_layernorm", false)) {
    reader.wrong("apply_residual_connection_post_layernorm", "asks for a form of this family that is not supported",
                 "false");
  }
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  if (config.ff_width != kFeedForwardFactor * config.width) {
    throw std::logic_error("bloom: config.json can hold no feed-forward width but 4 * hidden_size");
  }
  nlohmann::ordered_json out;
  out["hidden_size"] = config.width;
  out["n_head"] = config.heads;
  out["n_layer"] = config.decoder_layers;
  out["layer_norm_epsilon"] = config.norm_epsilon;
  out["hidden_dropout"] = config.dropout;
  out["attention_dropout"] = config.dropout;
  out["apply_residual_connection_post_layernorm"] = false;
  out["slow_but_exact"] = false;
  out["pretraining_tp"] = 1;
  write_decoder_only(config, out);
  return out;
}

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  static const NameTable kTable = {
      .outside = {{"embedding.weight", "transformer.word_embeddings.weight"},
                  {"embedding_norm.weight", "transformer.word_embeddings_layernorm.weight"},
                  {"embedding_norm.bias", "transformer.word_embeddings_layernorm.bias"},
                  {"head.weight", "lm_head.weight"},
                  {"decoder.final_norm.weight", "transformer.ln_f.weight"},
                  {"decoder.final_norm.bias", "transformer.ln_f.bias"}},
      .blocks = "transformer.h.",
      .modules = {{"self_attention.norm", "input_layernorm"},
                  {"self_attention.query", "self_attention.query_key_value"},
                  {"self_attention.key", "self_attention.query_key_value"},
                  {"self_attention.value", "self_attention.query_key_value"},
                  {"self_attention.output", "self_attention.dense"},
                  {"feed_forward.norm", "post_attention_layernorm"},
                  {"feed_forward.up", "mlp.dense_h_to_4h"},
                  {"feed_forward.down", "mlp.dense_4h_to_h"}},
      .join = Join::kHeads};
  return stored_by(kTable, parameter);
}

}  // namespace
}  // namespace bloom

Family bloom_family() {
  using namespace bloom;
  return {.name = "bloom",
          .architecture = "BloomForCausalLM",
          .base = base(),
          .shapes = {.heads_make_width = true, .ff_factor = kFeedForwardFactor},
          .read_config = read_config,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "transformer.word_embeddings.weight",
          .stored_head = "lm_head.weight",
          .optional_prefix = "transformer."};
}

}  // namespace draftsmith::model
