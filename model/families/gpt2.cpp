// GPT-2 (DistilGPT2, Cerebras-GPT): learned positions, layer norms, Conv1D weights stored [in,out], query, key and
// value joined. Keys and defaults are those of Transformers 5.23's GPT2Config.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

TransformerConfig gpt2_base() {
  TransformerConfig config = decoder_only_with_biases("gpt2");
  config.activation = Activation::kGeluTanh;
  config.positions = Positions::kLearned;
  config.smaller_residual_start = true;
  return config;
}

void gpt2_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("n_embd", config.width, {1, kMaxWidth}, 768);
  keys.integer("n_head", config.heads, {1, kMaxHeads}, 12);
  read_split_width(keys, config, "n_head");
  keys.integer("n_layer", config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer("n_inner", config.ff_width, {1, kMaxWidth}, 4 * config.width);
  keys.integer("n_positions", config.max_positions, {1, kMaxPositions}, 1024);
  keys.also("n_ctx", config.max_positions);
  keys.activation("activation_function", config.activation, "gelu_new");
  keys.number("layer_norm_epsilon", config.norm_epsilon, 1e-5, 0.0, 1.0);
  keys.number("resid_pdrop", config.dropout, 0.1, 0.0, 0.999);
  keys.also("embd_pdrop", config.dropout);
  keys.also("attn_pdrop", config.dropout);
  // Variants of attention that change its numbers and that no model of the papers uses.
  keys.fixed("scale_attn_by_inverse_layer_idx", false);
  keys.fixed("scale_attn_weights", true);
  keys.fixed("add_cross_attention", false);
  keys.known({"reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation",
              "summary_proj_to_labels", "summary_first_dropout"});
  decoder_only_keys(keys, config, {.vocabulary = 50257, .tied_head = true, .bos = 50256, .eos = 50256});
}

const NameTable& gpt2_names(const TransformerConfig&) {
  static const NameTable kTable = {.outside = {{"embedding.weight", "transformer.wte.weight"},
                                               {"decoder.positions.weight", "transformer.wpe.weight"},
                                               {"head.weight", "lm_head.weight"},
                                               {"decoder.final_norm.weight", "transformer.ln_f.weight"},
                                               {"decoder.final_norm.bias", "transformer.ln_f.bias"}},
                                   .blocks = {{"decoder", "transformer.h."}},
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
  return kTable;
}

}  // namespace

Family gpt2_family() {
  return {.name = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .base = gpt2_base(),
          .shapes = {.heads_make_width = true},
          .keys = gpt2_keys,
          .names = gpt2_names,
          // Causal masks that older versions kept as buffers.
          .unused = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"},
          .optional_prefix = "transformer."};
}

}  // namespace draftsmith::model
