// GPT-2 (DistilGPT2, Cerebras-GPT): learned positions, layer norms, Conv1D weights stored [in,out], query, key and
// value joined. Keys and defaults are those of Transformers 5.23's GPT2Config.
#include <cmath>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace {

// Variants of attention that change its numbers and that no model of the papers uses.
void refuse_variants(ConfigReader& reader) {
  if (reader.get_bool("scale_attn_by_inverse_layer_idx", false)) {
    reader.wrong("scale_attn_by_inverse_layer_idx", "asks for a form of attention that is not supported", "false");
  }
  if (!reader.get_bool("scale_attn_weights", true)) {
    reader.wrong("scale_attn_weights", "asks for a form of attention that is not supported", "true");
  }
  if (reader.get_bool("add_cross_attention", false)) {
    reader.wrong("add_cross_attention", "asks for a form of this family that is not supported", "false");
  }
}

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config;
  config.family = "gpt2";
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 50257);
  config.width = reader.get_int("n_embd", {1, kMaxWidth}, 768);
  config.heads = reader.get_int("n_head", {1, kMaxHeads}, 12);
  if (config.width % config.heads != 0) {
    reader.wrong("n_head", "does not divide n_embd", fmt::format("a divisor of {}", config.width));
  }
  config.head_width = std::max<int64_t>(1, config.width / config.heads);
  config.ff_width = reader.get_int("n_inner", {1, kMaxWidth}, 4 * config.width);
  config.decoder_layers = reader.get_int("n_layer", {1, kMaxLayers}, 12);
  config.max_positions = reader.get_int("n_positions", {1, kMaxPositions}, 1024);
  config.norm = Norm::kLayer;
  config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0.0, 1.0);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  config.positions = Positions::kLearned;
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("resid_pdrop", 0.1, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", true);
  read_decoder_only(reader, config, 50256);
  if (!config.bos && !reader.has("bos_token_id") && config.vocabulary > 50256) {
    config.bos = 50256;
    config.decoder_start = 50256;
  }
  refuse_variants(reader);
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  nlohmann::ordered_json out;
  out["n_embd"] = config.width;
  out["n_head"] = config.heads;
  out["n_layer"] = config.decoder_layers;
  out["n_inner"] = config.ff_width;
  out["n_positions"] = config.max_positions;
  out["n_ctx"] = config.max_positions;
  out["activation_function"] = activation_name(config.activation);
  out["layer_norm_epsilon"] = config.norm_epsilon;
  out["embd_pdrop"] = config.dropout;
  out["resid_pdrop"] = config.dropout;
  out["attn_pdrop"] = config.dropout;
  out["scale_attn_weights"] = true;
  write_decoder_only(config, out);
  return out;
}

StoredTensor stored_in_block(const BlockParameter& parameter) {
  static const std::map<std::string, int64_t> kJoined = {{"query", 0}, {"key", 1}, {"value", 2}};
  const size_t dot = parameter.leaf.find('.');
  const std::string first = parameter.leaf.substr(0, dot);
  const std::string kind = parameter.leaf.substr(dot);  // ".weight" or ".bias"
  const std::string block = "transformer.h." + parameter.layer + ".";
  const bool attention = parameter.part == "self_attention";
  if (first == "norm") return {.name = block + (attention ? "ln_1" : "ln_2") + kind};
  const bool matrix = kind == ".weight";
  if (const auto part = kJoined.find(first); part != kJoined.end()) {
    return {.name = block + "attn.c_attn" + kind,
            .transposed = matrix,
            .join = Join::kBlocks,
            .part = part->second,
            .parts = 3};
  }
  if (attention) return {.name = block + "attn.c_proj" + kind, .transposed = matrix};
  return {.name = block + (first == "up" ? "mlp.c_fc" : "mlp.c_proj") + kind, .transposed = matrix};
}

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  if (parameter == "embedding.weight") return {.name = "transformer.wte.weight"};
  if (parameter == "positions.weight") return {.name = "transformer.wpe.weight"};
  if (parameter == "head.weight") return {.name = "lm_head.weight"};
  if (parameter == "decoder.final_norm.weight") return {.name = "transformer.ln_f.weight"};
  if (parameter == "decoder.final_norm.bias") return {.name = "transformer.ln_f.bias"};
  const auto block = decoder_parameter(parameter);
  if (!block) throw std::logic_error("gpt2: no stored name for parameter " + parameter);
  return stored_in_block(*block);
}

}  // namespace

Family gpt2_family() {
  return {.name = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .read_config = read_config,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "transformer.wte.weight",
          .stored_head = "lm_head.weight",
          // Causal masks that older versions kept as buffers.
          .unused = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"},
          .optional_prefix = "transformer."};
}

}  // namespace draftsmith::model
