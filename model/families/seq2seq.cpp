// Encoder-decoders with layer norms: Marian (OPUS-MT), M2M-100 (NLLB-200), BART (DistilBART), mBART and Pegasus. They
// differ in where norms stand, in positions, and in whether logits have a bias. Keys and defaults are those of
// Transformers 5.23's configurations.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// A family's own values, for a config.json without any.
struct Seq2SeqDefaults {
  int64_t vocabulary;
  int64_t pad, eos, start;
  const char* activation = "gelu";
  bool scaled = false;  // scale_embedding
};

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

void size_keys(ConfigKeys& keys, TransformerConfig& config, const Seq2SeqDefaults& defaults) {
  keys.integer("vocab_size", config.vocabulary, {2, kMaxVocabulary}, defaults.vocabulary);
  keys.integer("d_model", config.width, {1, kMaxWidth}, 1024);
  keys.integer("encoder_layers", config.encoder_layers, {0, kMaxLayers}, 12);  // 0: see ordinary_kind()
  keys.integer("decoder_layers", config.decoder_layers, {1, kMaxLayers}, 12);
  keys.integer("encoder_attention_heads", config.heads, {1, kMaxHeads}, kUsualHeads);
  same_in_decoder(keys, "decoder_attention_heads", config.heads, kUsualHeads);
  read_split_width(keys, config, "encoder_attention_heads");
  keys.integer("encoder_ffn_dim", config.ff_width, {1, kMaxWidth}, kUsualFeedForward);
  same_in_decoder(keys, "decoder_ffn_dim", config.ff_width, kUsualFeedForward);
  keys.integer("max_position_embeddings", config.max_positions, {1, kMostPositions}, 1024);
  if (keys.reads()) config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_width));
}

void scale_keys(ConfigKeys& keys, TransformerConfig& config, const Seq2SeqDefaults& defaults) {
  bool scaled = config.embedding_scale != 1.0;
  keys.flag("scale_embedding", scaled, defaults.scaled);
  if (keys.reads()) config.embedding_scale = scaled ? std::sqrt(static_cast<double>(config.width)) : 1.0;
}

void seq2seq_keys(ConfigKeys& keys, TransformerConfig& config, const Seq2SeqDefaults& defaults) {
  size_keys(keys, config, defaults);
  scale_keys(keys, config, defaults);
  keys.activation("activation_function", config.activation, defaults.activation);
  keys.number("dropout", config.dropout, 0.1, 0.0, 0.999);
  keys.also("attention_dropout", config.dropout);
  for (const char* key : {"activation_dropout", "encoder_layerdrop", "decoder_layerdrop"}) keys.also(key, 0.0);
  keys.number("init_std", config.initializer_range, 0.02, 0.0, 1e3);
  keys.flag("tie_word_embeddings", config.tied_head, true);
  keys.fixed("is_encoder_decoder", true);
  keys.also("use_cache", true);
  keys.also("forced_eos_token_id", nullptr);  // the settings of generation decide; Transformers would take EOS
  check_older_flags(keys, config);
  // Older names, and settings of other tasks and programs, which change no number.
  keys.known({"num_hidden_layers", "hidden_size", "num_attention_heads", "classif_dropout", "extra_pos_embeddings",
              "force_bos_token_to_be_generated", "add_bias_logits"});
  const IntRange ids{0, config.vocabulary - 1};
  const auto usual = [&](int64_t id) { return std::min(id, ids.max); };
  const TokenIds seen{config.vocabulary};
  keys.integer("bos_token_id", config.bos, seen);
  keys.integer("pad_token_id", config.pad, seen, usual(defaults.pad));
  keys.end_ids("eos_token_id", config.eos, seen);
  if (keys.reads() && config.eos.empty() && !keys.has("eos_token_id")) config.eos = {usual(defaults.eos)};
  keys.integer("decoder_start_token_id", config.decoder_start, ids, usual(defaults.start));
}

NameTable make_seq2seq_names() {
  NameTable table{.outside = {{"embedding.weight", "model.shared.weight"},
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
    table.modules[attention + "query"] = stored + "q_proj";
    table.modules[attention + "key"] = stored + "k_proj";
    table.modules[attention + "value"] = stored + "v_proj";
    table.modules[attention + "output"] = stored + "out_proj";
  }
  for (const std::string stack : {"encoder", "decoder"}) {
    table.outside[stack + ".positions.weight"] = "model." + stack + ".embed_positions.weight";
    for (const std::string kind : {".weight", ".bias"}) {
      table.outside[stack + ".embedding_norm" + kind] = "model." + stack + ".layernorm_embedding" + kind;
      table.outside[stack + ".final_norm" + kind] = "model." + stack + ".layer_norm" + kind;
    }
  }
  return table;
}

const NameTable& seq2seq_names(const TransformerConfig&) {
  static const NameTable kTable = make_seq2seq_names();
  return kTable;
}

// Returns a configuration with norms before the sublayers and behind the stacks, and a bias on logits.
TransformerConfig seq2seq_base(const std::string& family, Positions positions) {
  TransformerConfig config = decoder_only_with_biases(family);
  config.encoder_decoder = true;
  config.activation = Activation::kGelu;
  config.positions = positions;
  config.position_offset = positions == Positions::kLearned ? 2 : 0;
  config.head_bias = true;
  return config;
}

Family seq2seq_family(const TransformerConfig& base, const std::string& architecture,
                      void (*keys)(ConfigKeys&, TransformerConfig&)) {
  Family family{.name = base.family,
                .architecture = architecture,
                .base = base,
                .shapes = {.heads_make_width = true},
                .keys = keys,
                .names = seq2seq_names,
                .embedding_copies = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
                .unused = {"model.encoder.version", "model.decoder.version"},
                .optional_prefix = "model."};
  if (base.positions == Positions::kSinusoid) {
    const std::string suffix = base.sinusoids_reach_end ? "s" : "";  // M2M-100's buffers are called weights
    for (const std::string stack : {"encoder", "decoder"}) {
      family.sinusoids.push_back("model." + stack + ".embed_positions.weight" + suffix);
    }
  }
  return family;
}

// ---- What each has of its own

void marian_keys(ConfigKeys& keys, TransformerConfig& config) {
  seq2seq_keys(keys, config, {.vocabulary = 58101, .pad = 58100, .eos = 0, .start = 58100});
  keys.fixed("share_encoder_decoder_embeddings", true);
  int64_t targets = config.vocabulary;
  keys.integer("decoder_vocab_size", targets, {2, kMaxVocabulary}, config.vocabulary);
  if (targets != config.vocabulary) {
    keys.reader().wrong("decoder_vocab_size", "differs from vocab_size: separate vocabularies are not supported",
                        std::to_string(config.vocabulary));
  }
}

// Its positions count from the padding id on, and pass over padding.
void m2m_100_keys(ConfigKeys& keys, TransformerConfig& config) {
  seq2seq_keys(keys, config,
               {.vocabulary = 128112, .pad = 1, .eos = 2, .start = 2, .activation = "relu", .scaled = true});
  config.position_offset = config.pad + 1;
  if (keys.reads() && config.decoder_start == config.pad) {
    keys.reader().wrong("decoder_start_token_id", "is the padding id, which has no position in this family",
                        "another id, usually eos_token_id");
  }
}

void bart_keys(ConfigKeys& keys, TransformerConfig& config) {
  seq2seq_keys(keys, config, {.vocabulary = 50265, .pad = 1, .eos = 2, .start = 2});
}

void mbart_keys(ConfigKeys& keys, TransformerConfig& config) {
  seq2seq_keys(keys, config, {.vocabulary = 50265, .pad = 1, .eos = 2, .start = 0});
}

void pegasus_keys(ConfigKeys& keys, TransformerConfig& config) {
  seq2seq_keys(keys, config, {.vocabulary = 50265, .pad = 0, .eos = 1, .start = 0});
}

}  // namespace

Family marian_family() {
  TransformerConfig base = seq2seq_base("marian", Positions::kSinusoid);
  base.activation = Activation::kSilu;
  base.norm_place = NormPlace::kAfterSum;
  base.final_norm = false;
  Family family = seq2seq_family(base, "MarianMTModel", marian_keys);
  family.shapes.scaled_embedding = true;
  return family;
}

Family m2m_100_family() {
  TransformerConfig base = seq2seq_base("m2m_100", Positions::kSinusoid);
  base.activation = Activation::kRelu;
  base.sinusoids_reach_end = true;
  base.head_bias = false;
  Family family = seq2seq_family(base, "M2M100ForConditionalGeneration", m2m_100_keys);
  family.shapes.scaled_embedding = family.shapes.starts_with_eos = true;
  return family;
}

Family bart_family() {
  TransformerConfig base = seq2seq_base("bart", Positions::kLearned);
  base.norm_place = NormPlace::kAfterSum;
  base.final_norm = false;
  base.embedding_norm = true;
  Family family = seq2seq_family(base, "BartForConditionalGeneration", bart_keys);
  family.other_architectures = {"BartModel"};  // facebook/bart-base and -large
  family.shapes.starts_with_eos = true;
  return family;
}

Family mbart_family() {
  TransformerConfig base = seq2seq_base("mbart", Positions::kLearned);
  base.embedding_norm = true;
  Family family = seq2seq_family(base, "MBartForConditionalGeneration", mbart_keys);
  family.shapes.scaled_embedding = family.shapes.starts_with_eos = true;
  return family;
}

Family pegasus_family() {
  TransformerConfig base = seq2seq_base("pegasus", Positions::kSinusoid);
  base.activation = Activation::kRelu;
  Family family = seq2seq_family(base, "PegasusForConditionalGeneration", pegasus_keys);
  family.shapes.scaled_embedding = true;
  family.stores_sinusoids = true;
  return family;
}

}  // namespace draftsmith::model
