#include <fmt/format.h>

#include "base/registry.h"
#include "data/chat/chat_template.h"
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

bool rotates(const Family& family) {
  return family.base.positions == Positions::kRotary;
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
  if (rotates(family) && options.head_width % 2 != 0) {
    wrong("rotary positions need heads of even width", "an even head_width", options.head_width);
  }
}

// Ids of a tokenizer; it may lack pad and bos.
void set_tokens(const data::Tokenizer& tokenizer, const Family& family, model::TransformerConfig& config) {
  config.vocabulary = tokenizer.vocabulary();
  const std::vector<int32_t> ends = data::reply_ends(tokenizer);
  config.eos = {ends.begin(), ends.end()};
  config.pad = tokenizer.pad() >= 0 ? tokenizer.pad() : tokenizer.eos();
  config.decoder_start = family.shapes.starts_with_eos ? tokenizer.eos() : config.pad;
  if (config.sinusoids_reach_end) config.position_offset = config.pad + 1;  // as M2M-100's reader has it
  if (config.encoder_decoder) return;
  config.bos = tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eos();
  config.decoder_start = *config.bos;
}

}  // namespace

Fields<ArchitectureOptions> ArchitectureOptions::fields() {
  using A = ArchitectureOptions;
  return Fields<A>("architecture of a model from random weights")
      .add(
          "family", &A::family, Choices(model::families().names()),
          "Family, which decides the kind of model, its names and its file form; t5, mt5, umt5, marian, m2m_100, bart, "
          "mbart and pegasus are encoder-decoders.")
      .add("width", &A::width, Range{1, 65536}, "Width D of the hidden states.")
      .add("heads", &A::heads, Range{1, 1024}, "Attention heads H.")
      .add("kv_heads", &A::kv_heads, Range{0, 1024},
           "Heads of keys and values, each shared by as many queries, in families that can; 0: as many as heads.")
      .add("head_width", &A::head_width, Range{1, 4096},
           "Width K of a head; H times K must equal D in families without a width of their own.")
      .add("ff_width", &A::ff_width, Range{1, 1 << 20}, "Width F of the feed-forward layers.")
      .add("encoder_layers", &A::encoder_layers, Range{1, 1024}, "Layers of an encoder-decoder's encoder.")
      .add("decoder_layers", &A::decoder_layers, Range{1, 1024}, "Layers N of the decoder.")
      .add("activation", &A::activation, Choices(named_activations().names()),
           "Activation of the feed-forward layers. Default: the family's own.")
      .add("gated", &A::gated,
           "Gated feed-forward layers of t5, as in T5 v1.1 and mT5. In other families the family decides.")
      .add("tied_head", &A::tied_head, "The head shares the embedding's weights.")
      .add("max_positions", &A::max_positions, Range{1, 1 << 20}, Unit{"tokens"},
           "Longest sequence, of models with learned, rotary or sinusoidal positions.")
      .add("dropout", &A::dropout, Range{0, 0.9}, "Dropout probability stored in the model's configuration.")
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
  config.tied_head = options.tied_head;
  config.dropout = options.dropout;
  config.embedding_std = options.embedding_std;
  if (config.positions != Positions::kRelativeBias && config.positions != Positions::kAlibi) {
    config.max_positions = options.max_positions;
  }
  model::derive_from_sizes(family, config);
  set_tokens(tokenizer, family, config);
  return config;
}

}  // namespace draftsmith::recipes
