// GPT-2 (DistilGPT2, Cerebras-GPT): learned positions, layer norms, Conv1D weights stored [in,out], query, key and
// value joined. Keys and defaults are those of Transformers 5.23's GPT2Config.
#include <cmath>

#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace gpt2 {
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

TransformerConfig base() {
  TransformerConfig config = decoder_only_with_biases("gpt2");
  config.activation = Activation::kGeluTanh;
  config.positions = Positions::kLearned;
  config.smaller_residual_start = true;
  return config;
}

TransformerConfig read_config(ConfigReader& reader) {
  TransformerConfig config = base();
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, 50257);
  config.width = reader.get_int("n_embd", {1, kMaxWidth}, 768);
  config.heads = reader.get_int("n_head", {1, kMaxHeads}, 12);
  config.head_width = read_split_width(reader, config, "n_head", "n_embd");
  config.ff_width = reader.get_int("n_inner", {1, kMaxWidth}, 4 * config.width);
  config.decoder_layers = reader.get_int("n_layer", {1, kMaxLayers}, 12);
  config.max_positions = reader.get_int("n_positions", {1, kMaxPositions}, 1024);
  config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0.0, 1.0);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.dropout = reader.number("resid_pdrop", 0.1, 0.0, 0.999);
  config.tied_head = reader.get_bool("tie_word_embeddings", true);
  read_decoder_only(reader, config, {.bos = 50256, .eos = 50256});
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

StoredTensor stored(const std::string& parameter, const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "transformer.wte.weight"},
                                               {"positions.weight", "transformer.wpe.weight"},
                                               {"head.weight", "lm_head.weight"},
                                               {"decoder.final_norm.weight", "transformer.ln_f.weight"},
                                               {"decoder.final_norm.bias", "transformer.ln_f.bias"}},
                                   .blocks = "transformer.h.",
                                   .modules = {{"self_attention.norm", "ln_1"},
                                               {"self_attention.query", "attn.c_attn"},
                                               {"self_attention.key", "attn.c_attn"},
                                               {"self_attention.value", "attn.c_attn"},
                                               {"self_attention.output", "attn.c_proj"},
                                               {"feed_forward.norm", "ln_2"},
                                               {"feed_forward.up", "mlp.c_fc"},
                                               {"feed_forward.down", "mlp.c_proj"}},
                                   .join = Join::kBlocks,
                                   .transposed = true};
  return stored_by(kTable, parameter);
}

}  // namespace
}  // namespace gpt2

Family gpt2_family() {
  using namespace gpt2;
  return {.name = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .base = base(),
          .shapes = {.heads_make_width = true},
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
