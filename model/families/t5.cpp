// T5 (v1.0: ReLU, tied, scaled output; v1.1: gated GELU, untied, unscaled), mT5 (as v1.1; its decoder output is never
// scaled, whatever its flags say) and UMT5 (as mT5, with a relative bias in every layer). Flan-T5 and MADLAD-400 are T5
// v1.1, ByT5 is T5 v1.1 by its architecture. Keys and defaults are those of Transformers 5.23's configurations.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

struct T5Defaults {
  int64_t vocabulary, ff_width, layers, heads;
  const char* feed_forward;
};

constexpr T5Defaults kT5Defaults = {32128, 2048, 6, 8, "relu"};
constexpr T5Defaults kMt5Defaults = {250112, 1024, 8, 6, "gated-gelu"};

constexpr int64_t kMaxDistance = int64_t{1} << 20;  // a table holds one entry for each

// feed_forward_proj is "ACT" or "gated-ACT", where "gated-gelu" means gelu_new; dense_act_fn and is_gated_act override
// it.
void read_feed_forward(ConfigReader& reader, const std::string& fallback, TransformerConfig& config) {
  const std::string projection = reader.get_string("feed_forward_proj", fallback);
  const bool gated = projection.rfind("gated-", 0) == 0;
  const std::string plain = gated ? projection.substr(6) : projection;
  const std::string implied = projection == "gated-gelu" ? "gelu_new" : plain;
  config.gated = reader.get_bool("is_gated_act", gated);
  const auto* activation = activations().find(reader.get_string("dense_act_fn", implied));
  if (activation == nullptr) {
    reader.wrong(reader.has("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj", "is not a known activation",
                 "relu, gelu, gelu_new, gelu_pytorch_tanh or silu, with \"gated-\" before it where it gates");
    return;
  }
  config.activation = activation->value;
}

void feed_forward_keys(ConfigKeys& keys, TransformerConfig& config, const std::string& fallback) {
  if (keys.reads()) read_feed_forward(keys.reader(), fallback, config);
  const std::string& activation = activations().name(config.activation);
  // "gated-gelu" is the name every reader knows for the gated tanh GELU.
  const std::string gated = "gated-" + (config.activation == Activation::kGeluTanh ? "gelu" : activation);
  keys.also("feed_forward_proj", config.gated ? gated : activation);
  keys.also("dense_act_fn", activation);
  keys.also("is_gated_act", config.gated);
}

void t5_common_keys(ConfigKeys& keys, TransformerConfig& config, const T5Defaults& defaults) {
  keys.integer(keys.either("d_model", "hidden_size"), config.width, {1, kMaxWidth}, 512);
  keys.integer(keys.either("d_kv", "head_dim"), config.head_width, {1, kMaxWidth}, 64);
  keys.integer("d_ff", config.ff_width, {1, kMaxWidth}, defaults.ff_width);
  const char* layers = keys.either("num_layers", "num_hidden_layers");
  keys.integer(layers, config.encoder_layers, {0, kMaxLayers}, defaults.layers);  // least 0: see ordinary_kind()
  keys.integer("num_decoder_layers", config.decoder_layers, {1, kMaxLayers},
               std::max<int64_t>(1, config.encoder_layers));
  keys.integer(keys.either("num_heads", "num_attention_heads"), config.heads, {1, kMaxHeads}, defaults.heads);
  keys.integer("vocab_size", config.vocabulary, {2, kMaxVocabulary}, defaults.vocabulary);
  feed_forward_keys(keys, config, defaults.feed_forward);
  keys.integer("relative_attention_num_buckets", config.relative_buckets, {4, 1 << 20}, 32);
  keys.integer("relative_attention_max_distance", config.relative_max_distance, {2, kMaxDistance}, 128);
  if (keys.reads() && config.relative_max_distance <= config.relative_buckets / 2) {
    keys.reader().wrong(
        "relative_attention_max_distance", "is too small: it must exceed the distances that have buckets of their own",
        fmt::format("more than {}, half of relative_attention_num_buckets", config.relative_buckets / 2));
  }
  keys.number("layer_norm_epsilon", config.norm_epsilon, 1e-6, 0.0, 1.0);
  keys.number("dropout_rate", config.dropout, 0.1, 0.0, 0.999);
  keys.number("initializer_factor", config.initializer_factor, 1.0, 0.0, 1e6);
  keys.flag("tie_word_embeddings", config.tied_head, true);
  keys.fixed("is_encoder_decoder", true);
  keys.also("use_cache", true);
  keys.known({"n_positions"});  // of the first T5 directories, whose positions have no end
  const IntRange ids{0, config.vocabulary - 1};
  // Padding stands for a start id that is not given, which must exist.
  if (keys.has("decoder_start_token_id")) {
    keys.integer("pad_token_id", config.pad, TokenIds{config.vocabulary}, 0);
  } else {
    keys.integer("pad_token_id", config.pad, ids, 0);
  }
  keys.end_ids("eos_token_id", config.eos, TokenIds{config.vocabulary});
  keys.integer("decoder_start_token_id", config.decoder_start, ids, config.pad);
}

void t5_keys(ConfigKeys& keys, TransformerConfig& config) {
  t5_common_keys(keys, config, kT5Defaults);
  bool scaled = config.output_scale != 1.0;
  keys.flag("scale_decoder_outputs", scaled, config.tied_head);
  const double scale = scaled ? std::pow(static_cast<double>(config.width), -0.5) : 1.0;
  if (!keys.reads() && std::abs(config.output_scale / scale - 1.0) > 1e-9) {
    throw std::logic_error("t5: config.json can hold no output scale but d_model^-0.5");
  }
  config.output_scale = scale;
}

void mt5_keys(ConfigKeys& keys, TransformerConfig& config) {
  t5_common_keys(keys, config, kMt5Defaults);
  keys.also("scale_decoder_outputs", false);
}

// The flag alone says whether outputs are scaled, whether or not the head is stored apart.
void umt5_keys(ConfigKeys& keys, TransformerConfig& config) {
  t5_common_keys(keys, config, kMt5Defaults);
  if (keys.reads() && config.tied_head) config.output_scale = std::pow(static_cast<double>(config.width), -0.5);
  keys.also("tie_word_embeddings", config.output_scale != 1.0);
}

NameTable make_t5_names(bool gated) {
  NameTable table{.outside = {{"embedding.weight", "shared.weight"}, {"head.weight", "lm_head.weight"}},
                  .blocks = {{"encoder", "encoder.block."}, {"decoder", "decoder.block."}},
                  .modules = {{"self_attention.norm", "layer.0.layer_norm"},
                              {"self_attention.relative_bias", "layer.0.SelfAttention.relative_attention_bias"},
                              {"cross_attention.norm", "layer.1.layer_norm"}}};
  for (const std::string part : {"query", "key", "value", "output"}) {
    table.modules["self_attention." + part] = std::string("layer.0.SelfAttention.") + part.front();
    table.modules["cross_attention." + part] = std::string("layer.1.EncDecAttention.") + part.front();
  }
  for (const std::string stack : {"encoder", "decoder"}) {
    const std::string layer = stack == "decoder" ? "layer.2." : "layer.1.";
    table.outside[stack + ".relative_bias.weight"] =
        stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    table.outside[stack + ".final_norm.weight"] = stack + ".final_layer_norm.weight";
    table.modules[stack + ".feed_forward.norm"] = layer + "layer_norm";
    table.modules[stack + ".feed_forward.gate"] = layer + "DenseReluDense.wi_0";
    table.modules[stack + ".feed_forward.up"] = layer + (gated ? "DenseReluDense.wi_1" : "DenseReluDense.wi");
    table.modules[stack + ".feed_forward.down"] = layer + "DenseReluDense.wo";
  }
  return table;
}

const NameTable& t5_names(const TransformerConfig& config) {
  static const NameTable kPlain = make_t5_names(false);
  static const NameTable kGated = make_t5_names(true);
  return config.gated ? kGated : kPlain;
}

Family make_t5(const std::string& name, const std::string& architecture,
               void (*keys)(ConfigKeys&, TransformerConfig&)) {
  // RMS norms without biases, relative positions, ReLU without a gate: the defaults of TransformerConfig.
  TransformerConfig base;
  base.family = name;
  return {.name = name,
          .architecture = architecture,
          .base = base,
          .shapes = {.optional_gate = true},
          .keys = keys,
          .names = t5_names,
          .embedding_copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
          // The first T5 conversions stored a bias for cross attention, which has no positions.
          .unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};
}

}  // namespace

std::vector<Family> t5_families() {
  Family t5 = make_t5("t5", "T5ForConditionalGeneration", t5_keys);
  t5.other_architectures = {"T5WithLMHeadModel"};  // the same model's first name
  Family umt5 = make_t5("umt5", "UMT5ForConditionalGeneration", umt5_keys);
  umt5.base.relative_bias_in_layers = true;
  return {t5, make_t5("mt5", "MT5ForConditionalGeneration", mt5_keys), umt5};
}

}  // namespace draftsmith::model
