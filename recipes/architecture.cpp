#include "recipes/architecture.h"

namespace draftsmith::recipes {

namespace {

model::Activation activation_named(const std::string& name) {
  if (name == "relu") return model::Activation::kRelu;
  if (name == "gelu") return model::Activation::kGelu;
  return model::Activation::kGeluTanh;
}

}  // namespace

Fields<ArchitectureOptions> ArchitectureOptions::fields() {
  using A = ArchitectureOptions;
  return Fields<A>("architecture of a model from random weights")
      .add("family", &A::family, Choices{"t5", "mt5"}, "Family, which decides names and file form.")
      .add("width", &A::width, Range{1, 65536}, "Width D of the hidden states.")
      .add("heads", &A::heads, Range{1, 1024}, "Attention heads H.")
      .add("head_width", &A::head_width, Range{1, 4096}, "Width K of a head; H times K need not equal D.")
      .add("ff_width", &A::ff_width, Range{1, 1 << 20}, "Width F of the feed-forward layers.")
      .add("encoder_layers", &A::encoder_layers, Range{1, 1024}, "Layers of the encoder.")
      .add("decoder_layers", &A::decoder_layers, Range{1, 1024}, "Layers N of the decoder.")
      .add("activation", &A::activation, Choices{"relu", "gelu", "gelu_tanh"}, "Activation of the feed-forward layers.")
      .add("gated", &A::gated, "Gated feed-forward layers, as in T5 v1.1 and mT5.")
      .add("tied_head", &A::tied_head, "The head shares the embedding's weights.")
      .add("relative_buckets", &A::relative_buckets, Range{4, 4096}, "Buckets of the relative position bias.")
      .add("relative_max_distance", &A::relative_max_distance, Range{8, 1 << 20}, Unit{"tokens"},
           "Distance from which all positions share a bucket.")
      .add("dropout", &A::dropout, Range{0, 0.9}, "Dropout probability stored in the model's configuration.")
      .add("initializer_factor", &A::initializer_factor, Above{0}, "Factor on all initial standard deviations.")
      .add("embedding_std", &A::embedding_std, Above{0},
           "Standard deviation of initial embeddings and head; absent: the family's own (T5: 1).")
      .add("seed", &A::seed, "Seed of the initial weights.");
}

model::TransformerConfig make_config(const ArchitectureOptions& options, int64_t vocabulary, int64_t pad, int64_t eos) {
  model::TransformerConfig config;
  config.family = options.family;
  config.vocabulary = vocabulary;
  config.width = options.width;
  config.heads = options.heads;
  config.head_width = options.head_width;
  config.ff_width = options.ff_width;
  config.encoder_layers = options.encoder_layers;
  config.decoder_layers = options.decoder_layers;
  config.activation = activation_named(options.activation);
  config.gated = options.gated;
  config.relative_buckets = options.relative_buckets;
  config.relative_max_distance = options.relative_max_distance;
  config.tied_head = options.tied_head;
  config.dropout = options.dropout;
  config.initializer_factor = options.initializer_factor;
  config.embedding_std = options.embedding_std;
  config.pad = pad;
  config.eos = {eos};
  config.decoder_start = pad;
  return config;
}

}  // namespace draftsmith::recipes
