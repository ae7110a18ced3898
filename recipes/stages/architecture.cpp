#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/registry.h"
#include "model/families/family.h"
#include "recipes/stages/starting_models.h"

namespace draftsmith::recipes {

namespace {

using model::Family;
using model::Positions;

const NamedValues<model::Activation>& named_activations() {
  using enum model::Activation;
  static const NamedValues<model::Activation> kActivations(
      "activation", {{"relu", kRelu}, {"gelu", kGelu}, {"gelu_tanh", kGeluTanh}, {"silu", kSilu}});
  return kActivations;
}

bool has_encoder(const Family& family) {
  return family.base.encoder_decoder;
}
bool rotates(const Family& family) {
  return family.base.positions == Positions::kRotary;
}
bool biases_by_distance(const Family& family) {
  return family.base.positions == Positions::kRelativeBias;
}
bool limits_positions(const Family& family) {
  return rotates(family) || family.base.positions == Positions::kLearned;
}
bool has_parallel_residual(const Family& family) {
  return family.base.parallel_residual;
}

// Returns the names of the families for which `holds` is true: "llama, gpt_neox".
std::string families_where(bool (*holds)(const Family&)) {
  std::vector<std::string> names;
  for (const Family& family : model::families()) {
    if (holds(family)) names.push_back(family.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_shape(const ArchitectureOptions& options, const std::string& where, Problems& problems) {
  const Family& family = model::families().at(options.family);
  const auto wrong = [&](const std::string& what, const std::string& expected, int64_t found) {
    problems.add({.where = where, .what = what, .expected = expected, .found = std::to_string(found)});
  };
  if (options.kv_heads > 0 && options.heads % options.kv_heads != 0) {
    wrong("kv_heads does not divide heads", "a divisor of " + std::to_string(options.heads), options.kv_heads);
  }
  if (options.kv_heads > 0 && options.kv_heads != options.heads && !family.shapes.grouped_keys) {
    wrong("heads of the family " + family.name + " do not share keys", "kv_heads = 0", options.kv_heads);
  }
  if (family.shapes.heads_make_width && options.heads * options.head_width != options.width) {
    wrong("in this family the heads make up the width", "heads times head_width = " + std::to_string(options.width),
          options.heads * options.head_width);
  }
  const int64_t ff_width = family.shapes.ff_factor * options.width;
  if (ff_width > 0 && options.ff_width != ff_width) {
    wrong(fmt::format("in this family ff_width is {} times the width", family.shapes.ff_factor),
          std::to_string(ff_width), options.ff_width);
  }
  if (rotates(family) && !family.shapes.partial_rotary && options.head_width % 2 != 0) {
    wrong("rotary positions need heads of even width", "an even head_width", options.head_width);
  }
}

// Returns how many numbers of each head are rotated: an even number.
int64_t rotary_width(const ArchitectureOptions& options, const Family& family) {
  const double share = family.shapes.partial_rotary ? options.rotary_share : 1.0;
  const auto pairs = static_cast<int64_t>(static_cast<double>(options.head_width) * share / 2);
  return 2 * std::max<int64_t>(1, pairs);
}

void set_positions(const ArchitectureOptions& options, const Family& family, model::TransformerConfig& config) {
  config.relative_buckets = options.relative_buckets;
  config.relative_max_distance = options.relative_max_distance;
  if (limits_positions(family)) config.max_positions = options.max_positions;
  if (!rotates(family)) return;
  config.rotary.width = rotary_width(options, family);
  config.rotary.base = options.rotary_base;
}

// Ids of a tokenizer; it may lack pad and bos.
void set_tokens(const data::Tokenizer& tokenizer, model::TransformerConfig& config) {
  config.vocabulary = tokenizer.vocabulary();
  config.eos = {tokenizer.eos()};
  config.pad = tokenizer.pad() >= 0 ? tokenizer.pad() : tokenizer.eos();
  config.decoder_start = config.pad;
  if (config.encoder_decoder) return;
  config.bos = tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eos();
  config.decoder_start = *config.bos;
}

}  // namespace

Fields<ArchitectureOptions> ArchitectureOptions::fields() {
  using A = ArchitectureOptions;
  return Fields<A>("architecture of a model from random weights")
      .add("family", &A::family, Choices(model::families().names()),
           fmt::format("Family, which decides the kind of model, its names and its file form. Encoder-decoders: {}.",
                       families_where(has_encoder)))
      .add("width", &A::width, Range{1, 65536}, "Width D of the hidden states.")
      .add("heads", &A::heads, Range{1, 1024}, "Attention heads H.")
      .add("kv_heads", &A::kv_heads, Range{0, 1024},
           fmt::format("Heads of keys and values, each shared by as many queries ({}); 0: as many as heads.",
                       families_where([](const Family& family) { return family.shapes.grouped_keys; })))
      .add("head_width", &A::head_width, Range{1, 4096},
           fmt::format("Width K of a head; H times K must equal D in {}.",
                       families_where([](const Family& family) { return family.shapes.heads_make_width; })))
      .add("ff_width", &A::ff_width, Range{1, 1 << 20}, "Width F of the feed-forward layers.")
      .add("encoder_layers", &A::encoder_layers, Range{1, 1024},
           fmt::format("Layers of the encoder ({}).", families_where(has_encoder)))
      .add("decoder_layers", &A::decoder_layers, Range{1, 1024}, "Layers N of the decoder.")
      .add("activation", &A::activation, Choices(named_activations().names()),
           "Activation of the feed-forward layers. Default: the family's own.")
      .add("gated", &A::gated,
           fmt::format("Gated feed-forward layers, as in T5 v1.1 and mT5 ({}). In other families the family decides.",
                       families_where([](const Family& family) { return family.shapes.optional_gate; })))
      .add("tied_head", &A::tied_head, "The head shares the embedding's weights.")
      .add("relative_buckets", &A::relative_buckets, Range{4, 4096},
           fmt::format("Buckets of the relative position bias ({}).", families_where(biases_by_distance)))
      .add("relative_max_distance", &A::relative_max_distance, Range{8, 1 << 20}, Unit{"tokens"},
           fmt::format("Distance from which all positions share a bucket ({}).", families_where(biases_by_distance)))
      .add("max_positions", &A::max_positions, Range{1, 1 << 20}, Unit{"tokens"},
           fmt::format("Longest sequence ({}).", families_where(limits_positions)))
      .add("rotary_base", &A::rotary_base, Range{1, 1e9},
           fmt::format("Base of the rotary frequencies ({}).", families_where(rotates)))
      .add("rotary_share", &A::rotary_share, Range{0.01, 1},
           fmt::format("Share of each head that is rotated ({}).",
                       families_where([](const Family& family) { return family.shapes.partial_rotary; })))
      .add("parallel_residual", &A::parallel_residual,
           fmt::format("Attention and feed-forward read the same input ({}).", families_where(has_parallel_residual)))
      .add("dropout", &A::dropout, Range{0, 0.9}, "Dropout probability stored in the model's configuration.")
      .add("initializer_factor", &A::initializer_factor, Above{0}, "Factor on all initial standard deviations.")
      .add("embedding_std", &A::embedding_std, Above{0},
           "Standard deviation of initial embeddings and head; absent: the family's own (T5: 1, others: 0.02).")
      .add("seed", &A::seed, "Seed of the initial weights.")
      .check(check_shape);
}

model::TransformerConfig make_config(const ArchitectureOptions& options, const data::Tokenizer& tokenizer) {
  const Family& family = model::families().at(options.family);
  model::TransformerConfig config = family.base;
  config.width = options.width;
  config.heads = options.heads;
  if (family.shapes.grouped_keys) config.kv_heads = options.kv_heads;
  config.head_width = options.head_width;
  config.ff_width = options.ff_width;
  if (config.encoder_decoder) config.encoder_layers = options.encoder_layers;
  config.decoder_layers = options.decoder_layers;
  if (options.activation) config.activation = named_activations().at(*options.activation);
  if (family.shapes.optional_gate) config.gated = options.gated;
  if (has_parallel_residual(family)) config.parallel_residual = options.parallel_residual;
  // T5 does not scale attention; its initial weights do.
  if (!config.encoder_decoder) config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
  config.tied_head = options.tied_head;
  config.dropout = options.dropout;
  config.initializer_factor = options.initializer_factor;
  config.initializer_range = 0.02 * options.initializer_factor;
  config.embedding_std = options.embedding_std;
  set_positions(options, family, config);
  set_tokens(tokenizer, config);
  return config;
}

}  // namespace draftsmith::recipes
