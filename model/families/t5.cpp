// T5 (v1.0: ReLU, tied, scaled output; v1.1: gated GELU, untied, unscaled) and mT5 (as v1.1; its decoder output is
// never scaled, whatever its flags say). Keys and defaults are those of Transformers 5.23's T5Config and MT5Config.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/families/family.h"

namespace draftsmith::model {

namespace t5 {
namespace {

struct Defaults {
  int64_t vocabulary, ff_width, layers, heads;
  const char* feed_forward;
};

constexpr Defaults kT5Defaults = {32128, 2048, 6, 8, "relu"};
constexpr Defaults kMt5Defaults = {250112, 1024, 8, 6, "gated-gelu"};

constexpr int64_t kMaxDistance = int64_t{1} << 20;  // a table holds one entry for each

// feed_forward_proj is "ACT" or "gated-ACT", where "gated-gelu" means gelu_new; dense_act_fn and is_gated_act override
// it.
void read_feed_forward(ConfigReader& reader, const std::string& fallback, TransformerConfig& config) {
  const std::string projection = reader.get_string("feed_forward_proj", fallback);
  const bool gated = projection.rfind("gated-", 0) == 0;
  const std::string plain = gated ? projection.substr(6) : projection;
  const std::string implied = projection == "gated-gelu" ? "gelu_new" : plain;
  config.gated = reader.get_bool("is_gated_act", gated);
  const std::string name = reader.get_string("dense_act_fn", implied);
  const auto activation = activation_named(name);
  if (!activation) {
    reader.wrong(reader.has("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj", "is not a known activation",
                 "relu, gelu, gelu_new, gelu_pytorch_tanh or silu, with \"gated-\" before it where it gates");
    return;
  }
  config.activation = *activation;
}

void read_positions(ConfigReader& reader, TransformerConfig& config) {
  config.relative_buckets = reader.get_int("relative_attention_num_buckets", {4, 1 << 20}, 32);
  config.relative_max_distance = reader.get_int("relative_attention_max_distance", {2, kMaxDistance}, 128);
  if (config.relative_max_distance <= config.relative_buckets / 2) {
    reader.wrong("relative_attention_max_distance",
                 "is too small: it must exceed the distances that have buckets of their own",
                 fmt::format("more than {}, half of relative_attention_num_buckets", config.relative_buckets / 2));
  }
}

void read_tokens(ConfigReader& reader, TransformerConfig& config) {
  const int64_t last = config.vocabulary - 1;
  config.pad = reader.get_int("pad_token_id", {0, last}, 0);
  config.eos = reader.has("eos_token_id") ? reader.get_ints("eos_token_id", {0, last}) : std::vector<int64_t>{1};
  config.decoder_start = reader.get_int("decoder_start_token_id", {0, last}, config.pad);
}

void refuse_variants(ConfigReader& reader) {
  if (!reader.get_bool("is_encoder_decoder", true)) {
    reader.wrong("is_encoder_decoder", "asks for a form of this family that is not supported", "true");
  }
  if (reader.has("quantization_config")) {
    reader.wrong("quantization_config", "asks for quantised weights, which are not supported",
                 "weights in F32, F16 or BF16");
  }
}

// RMS norms without biases, relative positions, ReLU without a gate: the defaults of TransformerConfig.
TransformerConfig base(const std::string& family) {
  TransformerConfig config;
  config.family = family;
  return config;
}

TransformerConfig read_common(ConfigReader& reader, const std::string& family, const Defaults& defaults) {
  TransformerConfig config = base(family);
  config.vocabulary = reader.get_int("vocab_size", {2, kMaxVocabulary}, defaults.vocabulary);
  config.width = reader.get_int("d_model", {1, kMaxWidth}, 512);
  config.heads = reader.get_int("num_heads", {1, kMaxHeads}, defaults.heads);
  config.head_width = reader.get_int("d_kv", {1, kMaxWidth}, 64);
  config.ff_width = reader.get_int("d_ff", {1, kMaxWidth}, defaults.ff_width);
  config.encoder_layers = reader.get_int("num_layers", {0, kMaxLayers}, defaults.layers);  // 0: see read_kind()
  config.decoder_layers =
      reader.get_int("num_decoder_layers", {1, kMaxLayers}, std::max<int64_t>(1, config.encoder_layers));
  config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-6, 0.0, 1.0);
  read_feed_forward(reader, defaults.feed_forward, config);
  read_positions(reader, config);
  config.dropout = reader.number("dropout_rate", 0.1, 0.0, 0.999);
  config.initializer_factor = reader.number("initializer_factor", 1.0, 0.0, 1e6);
  config.tied_head = reader.get_bool("tie_word_embeddings", true);
  read_tokens(reader, config);
  refuse_variants(reader);
  return config;
}

TransformerConfig read_t5(ConfigReader& reader) {
  TransformerConfig config = read_common(reader, "t5", kT5Defaults);
  const bool scaled = reader.get_bool("scale_decoder_outputs", config.tied_head);
  config.output_scale = scaled ? std::pow(static_cast<double>(config.width), -0.5) : 1.0;
  return config;
}

TransformerConfig read_mt5(ConfigReader& reader) {
  TransformerConfig config = read_common(reader, "mt5", kMt5Defaults);
  config.output_scale = 1.0;
  return config;
}

nlohmann::ordered_json write_config(const TransformerConfig& config) {
  const std::string activation = activation_name(config.activation);
  // "gated-gelu" is the name every reader knows for the gated tanh GELU.
  const std::string projection =
      !config.gated ? activation : "gated-" + (config.activation == Activation::kGeluTanh ? "gelu" : activation);
  const bool scaled = config.output_scale != 1.0;
  if (scaled && std::abs(config.output_scale * std::sqrt(static_cast<double>(config.width)) - 1.0) > 1e-9) {
    throw std::logic_error("t5: config.json can hold no output scale but d_model^-0.5");
  }
  nlohmann::ordered_json out;
  out["d_model"] = config.width;
  out["d_kv"] = config.head_width;
  out["d_ff"] = config.ff_width;
  out["num_layers"] = config.encoder_layers;
  out["num_decoder_layers"] = config.decoder_layers;
  out["num_heads"] = config.heads;
  out["vocab_size"] = config.vocabulary;
  out["feed_forward_proj"] = projection;
  out["dense_act_fn"] = activation;
  out["is_gated_act"] = config.gated;
  out["relative_attention_num_buckets"] = config.relative_buckets;
  out["relative_attention_max_distance"] = config.relative_max_distance;
  out["layer_norm_epsilon"] = config.norm_epsilon;
  out["dropout_rate"] = config.dropout;
  out["initializer_factor"] = config.initializer_factor;
  out["tie_word_embeddings"] = config.tied_head;
  out["scale_decoder_outputs"] = scaled;
  out["is_encoder_decoder"] = true;
  out["use_cache"] = true;
  out["pad_token_id"] = config.pad;
  if (config.eos.size() == 1) {
    out["eos_token_id"] = config.eos.front();
  } else {
    out["eos_token_id"] = config.eos;
  }
  out["decoder_start_token_id"] = config.decoder_start;
  return out;
}

// Stored sub-layer of block i: encoder 0 self-attention, 1 feed-forward; decoder 1 is cross attention and 2
// feed-forward.
std::string stored_sublayer(const std::string& stack, const std::string& part) {
  if (part == "self_attention") {
    return "layer.0";
  }
  if (part == "cross_attention") {
    return "layer.1";
  }
  return stack == "decoder" ? "layer.2" : "layer.1";
}

std::string stored_leaf(const std::string& part, const std::string& leaf, bool gated) {
  if (leaf == "norm.weight") {
    return "layer_norm.weight";
  }
  if (part == "feed_forward") {
    const std::string up = gated ? "wi_1" : "wi";
    const std::string name = leaf == "gate.weight" ? "wi_0" : leaf == "up.weight" ? up : "wo";
    return "DenseReluDense." + name + ".weight";
  }
  const std::string module = part == "self_attention" ? "SelfAttention." : "EncDecAttention.";
  return module + leaf.substr(0, 1) + ".weight";  // query, key, value, output
}

// "decoder.3.self_attention.query.weight" -> "decoder.block.3.layer.0.SelfAttention.q.weight".
std::string name_in_files(const std::string& parameter, const TransformerConfig& config) {
  if (parameter == "embedding.weight") {
    return "shared.weight";
  }
  if (parameter == "head.weight") {
    return "lm_head.weight";
  }
  const size_t stack_end = parameter.find('.');
  const std::string stack = parameter.substr(0, stack_end);
  const std::string rest = parameter.substr(stack_end + 1);
  if (rest == "relative_bias.weight") {
    return stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  }
  if (rest == "final_norm.weight") {
    return stack + ".final_layer_norm.weight";
  }
  const size_t index_end = rest.find('.');
  const size_t part_end = rest.find('.', index_end + 1);
  if (index_end == std::string::npos || part_end == std::string::npos) {
    throw std::logic_error("t5: no stored name for parameter " + parameter);
  }
  const std::string part = rest.substr(index_end + 1, part_end - index_end - 1);
  return fmt::format("{}.block.{}.{}.{}", stack, rest.substr(0, index_end), stored_sublayer(stack, part),
                     stored_leaf(part, rest.substr(part_end + 1), config.gated));
}

StoredTensor stored(const std::string& parameter, const TransformerConfig& config) {
  return {.name = name_in_files(parameter, config)};
}

Family make(const std::string& name, const std::string& architecture, TransformerConfig (*read)(ConfigReader&)) {
  return {.name = name,
          .architecture = architecture,
          .base = base(name),
          .shapes = {.optional_gate = true},
          .read_config = read,
          .write_config = write_config,
          .stored = stored,
          .stored_embedding = "shared.weight",
          .stored_head = "lm_head.weight",
          .embedding_copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
          // The first T5 conversions stored a bias for cross attention, which has no positions.
          .unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};
}

}  // namespace
}  // namespace t5

Family t5_family() {
  using namespace t5;
  return make("t5", "T5ForConditionalGeneration", read_t5);
}
Family mt5_family() {
  using namespace t5;
  return make("mt5", "MT5ForConditionalGeneration", read_mt5);
}

}  // namespace draftsmith::model
