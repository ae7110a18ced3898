#include "recipes/architecture.h"

#include <algorithm>
#include <cmath>

namespace draftsmith::recipes {

namespace {

bool is_encoder_decoder(const ArchitectureOptions& options) {
  return options.family == "t5" || options.family == "mt5";
}

model::Activation activation_named(const std::string& name) {
  if (name == "relu") return model::Activation::kRelu;
  if (name == "gelu") return model::Activation::kGelu;
  if (name == "silu") return model::Activation::kSilu;
  return model::Activation::kGeluTanh;
}

// The family's own, where its config.json could name others.
std::string usual_activation(const std::string& family) {
  if (family == "llama") return "silu";
  if (family == "gpt_neox") return "gelu";
  return family == "gpt2" || family == "bloom" ? "gelu_tanh" : "relu";
}

void check_shape(const ArchitectureOptions& options, const std::string& where, Problems& problems) {
  const auto wrong = [&](const std::string& what, const std::string& expected, int64_t found) {
    problems.add({.where = where, .what = what, .expected = expected, .found = std::to_string(found)});
  };
  if (options.kv_heads > 0 && options.heads % options.kv_heads != 0) {
    wrong("kv_heads does not divide heads", "a divisor of " + std::to_string(options.heads), options.kv_heads);
  }
  if (options.kv_heads > 0 && options.kv_heads != options.heads && options.family != "llama") {
    wrong("only the family llama shares key heads", "kv_heads = 0", options.kv_heads);
  }
  const bool splits = options.family == "gpt2" || options.family == "gpt_neox" || options.family == "bloom";
  if (splits && options.heads * options.head_width != options.width) {
    wrong("in this family the heads make up the width", "heads times head_width = " + std::to_string(options.width),
          options.heads * options.head_width);
  }
  if (options.family == "bloom" && options.ff_width != 4 * options.width) {
    wrong("in this family ff_width is four times the width", std::to_string(4 * options.width), options.ff_width);
  }
  if (options.family == "llama" && options.head_width % 2 != 0) {
    wrong("rotary positions need heads of even width", "an even head_width", options.head_width);
  }
}

// Numbers of each head that are rotated: an even number.
int64_t rotary_width(const ArchitectureOptions& options) {
  const double share = options.family == "llama" ? 1.0 : options.rotary_share;
  const auto pairs = static_cast<int64_t>(static_cast<double>(options.head_width) * share / 2);
  return 2 * std::max<int64_t>(1, pairs);
}

void set_family(const ArchitectureOptions& options, model::TransformerConfig& config) {
  const bool llama = options.family == "llama";
  config.encoder_decoder = false;
  config.encoder_layers = 0;
  config.kv_heads = options.kv_heads;
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(options.head_width));
  config.max_positions = options.family == "bloom" ? 0 : options.max_positions;
  config.norm = llama ? model::Norm::kRms : model::Norm::kLayer;
  config.norm_epsilon = llama ? 1e-6 : 1e-5;
  config.gated = llama;
  config.projection_bias = config.output_bias = config.feed_forward_bias = !llama;
  if (options.family == "gpt2") {
    config.positions = model::Positions::kLearned;
  } else if (options.family == "bloom") {
    config.positions = model::Positions::kAlibi;
    config.embedding_norm = true;
  } else {
    config.positions = model::Positions::kRotary;
    config.rotary.width = rotary_width(options);
    config.rotary.base = options.rotary_base;
    config.parallel_residual = !llama && options.parallel_residual;
  }
}

}  // namespace

Fields<ArchitectureOptions> ArchitectureOptions::fields() {
  using A = ArchitectureOptions;
  return Fields<A>("architecture of a model from random weights")
      .add("family", &A::family, Choices{"t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom"},
           "Family, which decides the kind of model, its names and its file form. t5 and mt5 are encoder-decoders.")
      .add("width", &A::width, Range{1, 65536}, "Width D of the hidden states.")
      .add("heads", &A::heads, Range{1, 1024}, "Attention heads H.")
      .add("kv_heads", &A::kv_heads, Range{0, 1024},
           "Heads of keys and values, each shared by as many queries (llama); 0: as many as heads.")
      .add("head_width", &A::head_width, Range{1, 4096},
           "Width K of a head; H times K need not equal D in t5, mt5 and llama.")
      .add("ff_width", &A::ff_width, Range{1, 1 << 20}, "Width F of the feed-forward layers.")
      .add("encoder_layers", &A::encoder_layers, Range{1, 1024}, "Layers of the encoder (t5, mt5).")
      .add("decoder_layers", &A::decoder_layers, Range{1, 1024}, "Layers N of the decoder.")
      .add("activation", &A::activation, Choices{"relu", "gelu", "gelu_tanh", "silu"},
           "Activation of the feed-forward layers. Default: relu for t5 and mt5, else the family's own.")
      .add("gated", &A::gated, "Gated feed-forward layers, as in T5 v1.1 and mT5; llama's are always gated.")
      .add("tied_head", &A::tied_head, "The head shares the embedding's weights.")
      .add("relative_buckets", &A::relative_buckets, Range{4, 4096}, "Buckets of the relative position bias (t5, mt5).")
      .add("relative_max_distance", &A::relative_max_distance, Range{8, 1 << 20}, Unit{"tokens"},
           "Distance from which all positions share a bucket (t5, mt5).")
      .add("max_positions", &A::max_positions, Range{1, 1 << 20}, Unit{"tokens"},
           "Longest sequence (llama, gpt2, gpt_neox).")
      .add("rotary_base", &A::rotary_base, Range{1, 1e9}, "Base of the rotary frequencies (llama, gpt_neox).")
      .add("rotary_share", &A::rotary_share, Range{0.01, 1}, "Share of each head that is rotated (gpt_neox).")
      .add("parallel_residual", &A::parallel_residual, "Attention and feed-forward read the same input (gpt_neox).")
      .add("dropout", &A::dropout, Range{0, 0.9}, "Dropout probability stored in the model's configuration.")
      .add("initializer_factor", &A::initializer_factor, Above{0}, "Factor on all initial standard deviations.")
      .add("embedding_std", &A::embedding_std, Above{0},
           "Standard deviation of initial embeddings and head; absent: the family's own (T5: 1, others: 0.02).")
      .add("seed", &A::seed, "Seed of the initial weights.")
      .check(check_shape);
}

model::TransformerConfig make_config(const ArchitectureOptions& options, const SpecialIds& ids) {
  model::TransformerConfig config;
  config.family = options.family;
  config.vocabulary = ids.vocabulary;
  config.width = options.width;
  config.heads = options.heads;
  config.head_width = options.head_width;
  config.ff_width = options.ff_width;
  config.encoder_layers = options.encoder_layers;
  config.decoder_layers = options.decoder_layers;
  config.activation = activation_named(options.activation.value_or(usual_activation(options.family)));
  config.gated = options.gated;
  config.relative_buckets = options.relative_buckets;
  config.relative_max_distance = options.relative_max_distance;
  config.tied_head = options.tied_head;
  config.dropout = options.dropout;
  config.initializer_factor = options.initializer_factor;
  config.initializer_range = 0.02 * options.initializer_factor;
  config.embedding_std = options.embedding_std;
  config.eos = {ids.eos};
  config.pad = ids.pad >= 0 ? ids.pad : ids.eos;
  config.decoder_start = config.pad;
  if (!is_encoder_decoder(options)) {
    config.bos = ids.bos >= 0 ? ids.bos : ids.eos;
    config.decoder_start = *config.bos;
    set_family(options, config);
  }
  return config;
}

}  // namespace draftsmith::recipes
