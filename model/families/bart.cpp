// BART and its relatives: the encoder-decoders Marian (OPUS-MT), M2M-100 (NLLB-200), BART (DistilBART), mBART and
// Pegasus, and OPT, a decoder alone. They differ in where norms stand, in positions, and in whether logits have a bias.
// Keys and defaults are those of Transformers 5.23's configurations.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// An encoder-decoder family: the ids of a config.json without any, and the ways of new models.
struct BartLike {
  const char* name;
  const char* architecture;
  int64_t vocabulary, pad, eos, start;
  Activation activation;
  Positions positions;  // learned ones go with norms of the embedded tokens
  NormPlace norm_place;
};

constexpr BartLike kBartLikes[] = {
    {"marian", "MarianMTModel", 58101, 58100, 0, 58100, Activation::kSilu, Positions::kSinusoid, NormPlace::kAfterSum},
    {"m2m_100", "M2M100ForConditionalGeneration", 128112, 1, 2, 2, Activation::kRelu, Positions::kSinusoid,
     NormPlace::kBefore},
    {"bart", "BartForConditionalGeneration", 50265, 1, 2, 2, Activation::kGelu, Positions::kLearned,
     NormPlace::kAfterSum},
    {"mbart", "MBartForConditionalGeneration", 50265, 1, 2, 0, Activation::kGelu, Positions::kLearned,
     NormPlace::kBefore},
    {"pegasus", "PegasusForConditionalGeneration", 50265, 0, 1, 0, Activation::kRelu, Positions::kSinusoid,
     NormPlace::kBefore}};

constexpr int64_t kMostPositions = int64_t{1} << 16;  // tables of sinusoids are made whole
constexpr int64_t kUsualFeedForward = 4096;
constexpr int64_t kUsualHeads = 16;

// Lists a size of the decoder, which must be the encoder's.
void same_in_decoder(ConfigKeys& keys, const std::string& key, int64_t encoders, int64_t fallback) {
  int64_t own = encoders;
  keys.integer(key, own, {1, kMaxWidth}, fallback);
  if (own == encoders) return;
  keys.reader().wrong(key, "differs from the encoder's, which is not supported", std::to_string(encoders));
}

// Checks what files of Transformers 3 say of the layout, which later versions take from the architecture.
void check_older_flags(ConfigKeys& keys, const TransformerConfig& config) {
  for (const auto& [key, value] :
       {std::pair{"normalize_before", config.norm_place == NormPlace::kBefore},
        std::pair{"add_final_layer_norm", config.final_norm}, std::pair{"normalize_embedding", config.embedding_norm},
        std::pair{"static_position_embeddings", config.positions == Positions::kSinusoid}}) {
    if (keys.has(key)) keys.fixed(key, value);
  }
}

void size_keys(ConfigKeys& keys, TransformerConfig& config, int64_t vocabulary) {
  keys.integer("vocab_size", config.vocabulary, {2, kMaxVocabulary}, vocabulary);
  keys.integer(keys.either("d_model", "hidden_size"), config.width, {1, kMaxWidth}, 1024);
  const char* layers = keys.either("encoder_layers", "num_hidden_layers");
  keys.integer(layers, config.encoder_layers, {0, kMaxLayers}, 12);  // least 0: see ordinary_kind()
  keys.integer("decoder_layers", config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer(keys.either("encoder_attention_heads", "num_attention_heads"), config.heads, {1, kMaxHeads},
               kUsualHeads);
  same_in_decoder(keys, "decoder_attention_heads", config.heads, kUsualHeads);
  read_split_width(keys, config, "encoder_attention_heads");
  keys.integer("encoder_ffn_dim", config.ff_width, {1, kMaxWidth}, kUsualFeedForward);
  same_in_decoder(keys, "decoder_ffn_dim", config.ff_width, kUsualFeedForward);
  keys.integer("max_position_embeddings", config.max_positions, {1, kMostPositions}, 1024);
  if (keys.reads()) config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
}

void marian_keys(ConfigKeys& keys, const TransformerConfig& config) {
  keys.fixed("share_encoder_decoder_embeddings", true);
  int64_t targets = config.vocabulary;
  keys.integer("decoder_vocab_size", targets, {2, kMaxVocabulary}, config.vocabulary);
  if (targets != config.vocabulary) {
    keys.reader().wrong("decoder_vocab_size", "differs from vocab_size: separate vocabularies are not supported",
                        std::to_string(config.vocabulary));
  }
}

// M2M-100's positions count from the padding id on, and pass over padding.
void m2m_100_keys(ConfigKeys& keys, TransformerConfig& config) {
  if (!keys.reads()) return keys.also("pad_token_id", config.position_offset - 1);  // generation may pad otherwise
  config.position_offset = config.pad + 1;
  if (config.decoder_start == config.pad) {
    keys.reader().wrong("decoder_start_token_id", "is the padding id, which has no position in this family",
                        "another id, usually eos_token_id");
  }
}

void bart_keys(ConfigKeys& keys, TransformerConfig& config) {
  const BartLike& family = *std::ranges::find(kBartLikes, config.family, &BartLike::name);
  const bool m2m_100 = config.family == "m2m_100";
  size_keys(keys, config, family.vocabulary);
  bool scaled = config.embedding_scale != 1.0;
  keys.flag("scale_embedding", scaled, m2m_100);
  if (keys.reads()) config.embedding_scale = scaled ? std::sqrt(static_cast<double>(config.width)) : 1.0;
  keys.activation("activation_function", config.activation, m2m_100 ? "relu" : "gelu");
  keys.number("dropout", config.dropout, 0.1, 0.0, 0.999);
  keys.also("attention_dropout", config.dropout);
  for (const char* key : {"activation_dropout", "encoder_layerdrop", "decoder_layerdrop"}) keys.also(key, 0.0);
  keys.number("init_std", config.initializer_range, 0.02, 0.0, 1e3);
  keys.flag("tie_word_embeddings", config.tied_head, true);
  keys.fixed("is_encoder_decoder", true);
  keys.also("use_cache", true);
  keys.also("forced_eos_token_id", nullptr);  // the settings of generation decide; Transformers would take EOS
  check_older_flags(keys, config);
  // Settings of other tasks and programs, which change no number.
  keys.known({"classif_dropout", "extra_pos_embeddings", "force_bos_token_to_be_generated", "add_bias_logits"});
  const IntRange ids{0, config.vocabulary - 1};
  const auto usual = [&](int64_t id) { return std::min(id, ids.max); };
  const TokenIds seen{config.vocabulary};
  keys.integer("bos_token_id", config.bos, seen);
  keys.integer("pad_token_id", config.pad, seen, usual(family.pad));
  keys.end_ids("eos_token_id", config.eos, seen);
  if (keys.reads() && config.eos.empty() && !keys.has("eos_token_id")) config.eos = {usual(family.eos)};
  keys.integer("decoder_start_token_id", config.decoder_start, ids, usual(family.start));
  if (config.family == "marian") marian_keys(keys, config);
  if (m2m_100) m2m_100_keys(keys, config);
}

NameTable make_bart_names(bool opt) {
  NameTable table{.outside = {{"embedding.weight", opt ? "model.decoder.embed_tokens.weight" : "model.shared.weight"},
                              {"head.weight", "lm_head.weight"},
                              {"head.bias", "final_logits_bias"}},
                  .blocks = {{"encoder", "model.encoder.layers."}, {"decoder", "model.decoder.layers."}},
                  .modules = {{"self_attention.norm", "self_attn_layer_norm"},
                              {"cross_attention.norm", "encoder_attn_layer_norm"},
                              {"feed_forward.norm", "final_layer_norm"},
                              {"feed_forward.up", "fc1"},
                              {"feed_forward.down", "fc2"}}};
  for (const auto& [attention, stored] : {std::pair<std::string, std::string>{"self_attention.", "self_attn."},
                                          std::pair<std::string, std::string>{"cross_attention.", "encoder_attn."}}) {
    for (const std::string part : {"query", "key", "value"}) {
      table.modules[attention + part] = stored + part.front() + "_proj";
    }
    table.modules[attention + "output"] = stored + "out_proj";
  }
  for (const std::string stack : {"encoder", "decoder"}) {
    table.outside[stack + ".positions.weight"] = "model." + stack + ".embed_positions.weight";
    for (const std::string kind : {".weight", ".bias"}) {
      table.outside[stack + ".embedding_norm" + kind] = "model." + stack + ".layernorm_embedding" + kind;
      table.outside[stack + ".final_norm" + kind] =
          "model." + stack + (opt ? ".final_layer_norm" : ".layer_norm") + kind;
    }
  }
  return table;
}

const NameTable& bart_names(const TransformerConfig& config) {
  static const NameTable kTable = make_bart_names(false);
  static const NameTable kOpt = make_bart_names(true);
  return config.family == "opt" ? kOpt : kTable;
}

TransformerConfig bart_base(const BartLike& family) {
  const bool learned = family.positions == Positions::kLearned;
  TransformerConfig config = with_layer_norms(family.name, true);
  config.activation = family.activation;
  config.norm_place = family.norm_place;
  config.final_norm = family.norm_place == NormPlace::kBefore;
  config.embedding_norm = learned;
  config.positions = family.positions;
  config.position_offset = learned ? 2 : 0;
  config.sinusoids_reach_end = config.family == "m2m_100";
  config.head_bias = config.family != "m2m_100";
  return config;
}

void opt_keys(ConfigKeys& keys, TransformerConfig& config) {
  keys.integer("hidden_size", config.width, {1, kMaxWidth}, 768);
  keys.integer("num_attention_heads", config.heads, {1, kMaxHeads}, 12);
  read_split_width(keys, config, "num_attention_heads");
  keys.integer("num_hidden_layers", config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer("ffn_dim", config.ff_width, {1, kMaxWidth}, 3072);
  keys.integer("max_position_embeddings", config.max_positions, {1, kMaxPositions}, 2048);
  keys.activation("activation_function", config.activation, "relu");
  keys.number("dropout", config.dropout, 0.1, 0.0, 0.999);
  keys.also("attention_dropout", 0.0);
  keys.also("layerdrop", 0.0);
  int64_t projected = config.width;
  keys.integer("word_embed_proj_dim", projected, {1, kMaxWidth}, config.width);
  if (projected != config.width) {
    keys.reader().wrong("word_embed_proj_dim", "projects the embeddings (opt-350m does), which is not supported",
                        fmt::format("hidden_size, {}; all other sizes of OPT have it", config.width));
  }
  keys.fixed("do_layer_norm_before", true);
  keys.fixed("layer_norm_elementwise_affine", true);
  bool no_final_norm = !config.final_norm;
  keys.flag("_remove_final_layer_norm", no_final_norm, false);
  config.final_norm = !no_final_norm;
  keys.flag("enable_bias", config.projection_bias, true);
  config.output_bias = config.feed_forward_bias = config.projection_bias;
  decoder_only_keys(keys, config, {.vocabulary = 50272, .tied_head = true, .bos = 2, .eos = 2});
  keys.number("init_std", config.initializer_range, 0.02, 0.0, 1e3);
}

}  // namespace

std::vector<Family> bart_families() {
  std::vector<Family> families;
  for (const BartLike& like : kBartLikes) {
    Family& family = families.emplace_back(
        Family{.name = like.name,
               .architecture = like.architecture,
               .base = bart_base(like),
               .keys = bart_keys,
               .names = bart_names,
               .embedding_copies = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
               .unused = {"model.encoder.version", "model.decoder.version"},
               .optional_prefix = "model."});
    const bool m2m_100 = family.name == "m2m_100";
    family.shapes = {.heads_make_width = true,
                     .scaled_embedding = family.name != "bart",
                     .starts_with_eos = m2m_100 || like.positions == Positions::kLearned};
    if (family.name == "bart") family.other_architectures = {"BartModel"};  // facebook/bart-base and -large
    family.stores_sinusoids = family.name == "pegasus";
    if (like.positions != Positions::kSinusoid) continue;
    for (const std::string stack : {"encoder", "decoder"}) {  // M2M-100's buffers are called weights
      family.sinusoids.push_back("model." + stack + ".embed_positions.weight" + (m2m_100 ? "s" : ""));
    }
  }
  return families;
}

// Learned positions begin at row 2 of their table. opt-350m, which norms after sublayers, is refused.
Family opt_family() {
  TransformerConfig base = with_layer_norms("opt", false);
  base.activation = Activation::kRelu;
  base.positions = Positions::kLearned;
  base.position_offset = 2;
  return {.name = "opt",
          .architecture = "OPTForCausalLM",
          .base = base,
          .shapes = {.heads_make_width = true},
          .keys = opt_keys,
          .names = bart_names,
          .unused = {"model.decoder.version"},
          // Directories of the Hub hold the base model alone.
          .optional_prefix = "model."};
}

}  // namespace draftsmith::model
