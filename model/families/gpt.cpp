// GPT-2 and its relatives, decoders of layers with biases, of which query, key and value are joined:
// GPT-2 (DistilGPT2, Cerebras-GPT): learned positions, Conv1D weights stored [in,out];
// GPT-NeoX (Pythia): partly rotated heads, attention and feed-forward side by side or one after the other;
// BLOOM: ALiBi, normed embeddings.
// Keys and defaults are those of Transformers 5.23's configurations.
#include <map>
#include <string>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// Names of the modules of a layer in a family's files.
struct GptLayer {
  const char *attention_norm, *joined, *output;
  const char *feed_forward_norm, *up, *down;
};

// Returns a family's names. `outside`: modules outside the layers, `layers` stands before a layer's number.
NameTable gpt_names(const std::map<std::string, std::string>& outside, const char* layers, const GptLayer& layer,
                    Join join) {
  NameTable table{.outside = {},
                  .blocks = {{"decoder", layers}},
                  .modules = {{"self_attention.norm", layer.attention_norm},
                              {"self_attention.query", layer.joined},
                              {"self_attention.key", layer.joined},
                              {"self_attention.value", layer.joined},
                              {"self_attention.output", layer.output},
                              {"feed_forward.norm", layer.feed_forward_norm},
                              {"feed_forward.up", layer.up},
                              {"feed_forward.down", layer.down}},
                  .join = join,
                  .transposed = join == Join::kBlocks};
  for (const auto& [module, stored] : outside) {
    for (const char* kind : {".weight", ".bias"}) table.outside[module + kind] = stored + kind;
  }
  return table;
}

void gpt2_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer(keys.either("n_embd", "hidden_size"), config.width, {1, kMaxWidth}, 768);
  keys.integer(keys.either("n_head", "num_attention_heads"), config.heads, {1, kMaxHeads}, 12);
  read_split_width(keys, config, "n_head");
  keys.integer(keys.either("n_layer", "num_hidden_layers"), config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer("n_inner", config.ff_width, {1, kMaxWidth}, 4 * config.width);
  keys.integer(keys.either("n_positions", "max_position_embeddings"), config.max_positions, {1, kMaxPositions}, 1024);
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
  static const NameTable kTable = gpt_names(
      {{"embedding", "transformer.wte"},
       {"decoder.positions", "transformer.wpe"},
       {"head", "lm_head"},
       {"decoder.final_norm", "transformer.ln_f"}},
      "transformer.h.", {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}, Join::kBlocks);
  return kTable;
}

void gpt_neox_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, 6144);
  keys.integer("intermediate_size", config.ff_width, {1, kMaxWidth}, 24576);
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, 44);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, 64);
  read_split_width(keys, config, "num_attention_heads");
  if (keys.has("head_dim")) keys.integer("head_dim", config.head_width, {config.head_width, config.head_width});
  keys.activation("hidden_act", config.activation, "gelu");
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, 2048);
  keys.number("layer_norm_eps", config.norm_epsilon, 1e-5, 0.0, 1.0);
  keys.flag("attention_bias", config.projection_bias, true);
  config.output_bias = config.projection_bias;
  keys.flag("use_parallel_residual", config.parallel_residual, true);
  keys.number("hidden_dropout", config.dropout, 0.0, 0.0, 0.999);
  keys.also("attention_dropout", config.dropout);
  rotary_keys(keys, config, {.base = "rotary_emb_base", .share = "rotary_pct", .share_default = 0.25});
  decoder_only_keys(keys, config, {.vocabulary = 50432, .bos = 0, .eos = 2});
}

const NameTable& gpt_neox_names(const TransformerConfig&) {
  static const NameTable kTable = gpt_names(
      {{"embedding", "gpt_neox.embed_in"}, {"head", "embed_out"}, {"decoder.final_norm", "gpt_neox.final_layer_norm"}},
      "gpt_neox.layers.",
      {"input_layernorm", "attention.query_key_value", "attention.dense", "post_attention_layernorm",
       "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
      Join::kHeads);
  return kTable;
}

constexpr int64_t kFeedForwardFactor = 4;  // BLOOM's config.json has no key for another

void bloom_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer(keys.either("hidden_size", "n_embed"), config.width, {1, kMaxWidth}, 64);
  const char* heads = keys.either("n_head", "num_attention_heads");
  keys.integer(heads, config.heads, {1, kMaxHeads}, 8);
  read_split_width(keys, config, heads);
  config.ff_width = kFeedForwardFactor * config.width;
  keys.integer(keys.either("n_layer", "num_hidden_layers"), config.decoder_layers, {1, kMaxLayers}, 2);
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
  static const NameTable kTable =
      gpt_names({{"embedding", "transformer.word_embeddings"},
                 {"decoder.embedding_norm", "transformer.word_embeddings_layernorm"},
                 {"head", "lm_head"},
                 {"decoder.final_norm", "transformer.ln_f"}},
                "transformer.h.",
                {"input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                 "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
                Join::kHeads);
  return kTable;
}

Family gpt_family(const char* name, const char* architecture, decltype(Family::keys) keys,
                  decltype(Family::names) names) {
  return {.name = name,
          .architecture = architecture,
          .base = with_layer_norms(name, false),
          .shapes = {.heads_make_width = true},
          .keys = keys,
          .names = names};
}

}  // namespace

Family gpt2_family() {
  Family family = gpt_family("gpt2", "GPT2LMHeadModel", gpt2_keys, gpt2_names);
  family.base.activation = Activation::kGeluTanh;
  family.base.positions = Positions::kLearned;
  family.base.smaller_residual_start = true;
  // Causal masks that older versions kept as buffers.
  family.unused = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"};
  family.optional_prefix = "transformer.";
  return family;
}

Family gpt_neox_family() {
  Family family = gpt_family("gpt_neox", "GPTNeoXForCausalLM", gpt_neox_keys, gpt_neox_names);
  family.base.activation = Activation::kGelu;
  family.base.positions = Positions::kRotary;
  family.base.parallel_residual = true;
  // Masks and frequencies that older versions kept as buffers.
  family.unused = {"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
                   "gpt_neox.layers.*.attention.rotary_emb.inv_freq"};
  return family;
}

Family bloom_family() {
  Family family = gpt_family("bloom", "BloomForCausalLM", bloom_keys, bloom_names);
  family.base.activation = Activation::kGeluTanh;
  family.base.positions = Positions::kAlibi;
  family.base.embedding_norm = true;
  family.shapes.ff_factor = kFeedForwardFactor;
  family.optional_prefix = "transformer.";
  return family;
}

}  // namespace draftsmith::model
