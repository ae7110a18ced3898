// BLOOM: ALiBi, normed embeddings, query, key and value joined head by head. Keys and defaults are those of
// Transformers 5.23's BloomConfig.
#include <cmath>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace {

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config;
  config.family = "bloom";
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 250880);
  const char* width = reader.has("n_embed") ? "n_embed" : "hidden_size";
  config.width = reader.get_int(width, {1, kMaxWidth}, 64);
  const char* heads = reader.has("num_attention_heads") ? "num_attention_heads" : "n_head";
  config.heads = reader.get_int(heads, {1, kMaxHeads}, 8);
  if (config.width % config.heads != 0) {
    reader.wrong(heads, "does not divide the width", fmt::format("a divisor of {}", config.width));
  }
  config.head_width = std::max<int64_t>(1, config.width / config.heads);
  config.ff_width = 4 * config.width;
  config.decoder_layers =
      reader.get_int(reader.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer", {1, kMaxLayers}, 2);
  config.norm = Norm::kLayer;
  config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0.0, 1.0);
  config.activation = Activation::kGeluTanh;
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  config.embedding_norm = true;
  config.positions = Positions::kAlibi;
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("hidden_dropout", 0.0, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", true);
  read_decoder_only(reader, config, 2);
  if (!config.bos && !reader.has("bos_token_id")) {
    config.bos = 1;
    config.decoder_start = 1;
  }
  if (reader.get_bool("apply_residual_connection_post_layernorm", false)) {
    reader.wrong("apply_residual_connection_post_layernorm", "asks for a form of this family that is not supported",
                 "false");
  }
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  if (config.ff_width != 4 * config.width) {
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

StoredTensor stored_in_block(const BlockParameter& parameter) {
  static const std::map<std::string, int64_t> kJoined = {{"query", 0}, {"key", 1}, {"value", 2}};
  const size_t dot = parameter.leaf.find('.');
  const std::string first = parameter.leaf.substr(0, dot);
  const std::string kind = parameter.leaf.substr(dot);
  const std::string block = "transformer.h." + parameter.layer + ".";
  const bool attention = parameter.part == "self_attention";
  if (first == "norm") return {.name = block + (attention ? "input_layernorm" : "post_attention_layernorm") + kind};
  if (const auto part = kJoined.find(first); part != kJoined.end()) {
    return {.name = block + "self_attention.query_key_value" + kind,
            .join = Join::kHeads,
            .part = part->second,
            .parts = 3};
  }
  if (attention) return {.name = block + "self_attention.dense" + kind};
  return {.name = block + (first == "up" ? "mlp.dense_h_to_4h" : "mlp.dense_4h_to_h") + kind};
}

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  static const std::map<std::string, std::string> kOutside = {
      {"embedding.weight", "transformer.word_embeddings.weight"},
      {"embedding_norm.weight", "transformer.word_embeddings_layernorm.weight"},
      {"embedding_norm.bias", "transformer.word_embeddings_layernorm.bias"},
      {"head.weight", "lm_head.weight"},
      {"decoder.final_norm.weight", "transformer.ln_f.weight"},
      {"decoder.final_norm.bias", "transformer.ln_f.bias"}};
  if (const auto name = kOutside.find(parameter); name != kOutside.end()) return {.name = name->second};
  const auto block = decoder_parameter(parameter);
  if (!block) throw std::logic_error("bloom: no stored name for parameter " + parameter);
  return stored_in_block(*block);
}

}  // namespace

Family bloom_family() {
  return {.name = "bloom",
          .architecture = "BloomForCausalLM",
          .read_config = read_config,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "transformer.word_embeddings.weight",
          .stored_head = "lm_head.weight",
          .optional_prefix = "transformer."};
}

}  // namespace draftsmith::model
