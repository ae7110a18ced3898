// Configurations of small models of every family, and models with random weights, for tests and benches.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random_tensors.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Sizes of a model; the other properties are those of its family. Letters as in TransformerConfig.
struct ModelSizes {
  int64_t vocabulary = 40;  // V
  int64_t width = 16;       // D
  int64_t heads = 2;        // H
  int64_t kv_heads = 0;     // Llama: heads of keys and values; 0: H
  int64_t head_width = 8;   // K
  int64_t ff_width = 32;    // F
  int64_t encoder_layers = 1;
  int64_t decoder_layers = 2;  // N
};

// Returns a T5 v1.0 whose head is not tied to its embedding.
inline TransformerConfig t5_config(const ModelSizes& sizes = {}) {
  TransformerConfig config;
  config.family = "t5";
  config.vocabulary = sizes.vocabulary;
  config.width = sizes.width;
  config.heads = sizes.heads;
  config.kv_heads = sizes.kv_heads;
  config.head_width = sizes.head_width;
  config.ff_width = sizes.ff_width;
  config.encoder_layers = sizes.encoder_layers;
  config.decoder_layers = sizes.decoder_layers;
  config.tied_head = false;
  return config;
}

// Returns a Llama with a tied head and 64 positions.
inline TransformerConfig llama_config(const ModelSizes& sizes = {}) {
  TransformerConfig config = t5_config(sizes);
  config.family = "llama";
  config.encoder_decoder = false;
  config.encoder_layers = 0;
  config.gated = true;
  config.activation = Activation::kSilu;
  config.positions = Positions::kRotary;
  config.rotary.width = sizes.head_width;
  config.attention_scale = 1 / std::sqrt(static_cast<double>(sizes.head_width));
  config.tied_head = true;
  config.max_positions = 64;
  return config;
}

// Returns what GPT-2, GPT-NeoX and BLOOM have in common, with 64 positions; `sizes` must have H * K = D.
inline TransformerConfig layer_norm_config(const std::string& family, const ModelSizes& sizes) {
  TransformerConfig config = llama_config(sizes);
  config.family = family;
  config.gated = false;
  config.norm = Norm::kLayer;
  config.norm_epsilon = 1e-5;
  config.activation = Activation::kGeluTanh;
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  return config;
}

inline TransformerConfig gpt2_config(const ModelSizes& sizes = {}) {
  TransformerConfig config = layer_norm_config("gpt2", sizes);
  config.positions = Positions::kLearned;
  return config;
}

inline TransformerConfig gpt_neox_config(const ModelSizes& sizes = {}) {
  TransformerConfig config = layer_norm_config("gpt_neox", sizes);
  config.rotary.width = sizes.head_width / 2;
  config.parallel_residual = true;
  config.tied_head = false;
  return config;
}

// Files of a BLOOM can only hold F = 4 * D.
inline TransformerConfig bloom_config(const ModelSizes& sizes = {.ff_width = 64}) {
  TransformerConfig config = layer_norm_config("bloom", sizes);
  config.positions = Positions::kAlibi;
  config.embedding_norm = true;
  config.max_positions = 0;
  return config;
}

// Returns a T5 of odd sizes: H*K differs from D, encoder and decoder differ in depth, distances pass the last bucket.
inline TransformerConfig tiny_t5() {
  TransformerConfig config = t5_config({.vocabulary = 23, .width = 20, .heads = 3, .head_width = 6, .ff_width = 28});
  config.encoder_layers = 2;
  config.decoder_layers = 3;
  config.relative_buckets = 8;
  config.relative_max_distance = 12;
  config.tied_head = true;
  config.output_scale = 0.3;
  return config;
}

inline TransformerConfig tiny_mt5() {
  TransformerConfig config = tiny_t5();
  config.family = "mt5";
  config.gated = true;
  config.activation = Activation::kGeluTanh;
  config.tied_head = false;
  config.output_scale = 1.0;
  return config;
}

// Returns a Llama in which two heads share keys and values.
inline TransformerConfig tiny_llama(int64_t layers = 2) {
  ModelSizes sizes{.vocabulary = 31, .width = 12, .heads = 6, .kv_heads = 3, .head_width = 4, .ff_width = 20};
  sizes.decoder_layers = layers;
  TransformerConfig config = llama_config(sizes);
  config.initializer_range = 0.3;
  return config;
}

// Sizes of the tiny models with layer norms.
inline ModelSizes tiny_sizes(int64_t layers, int64_t ff_width = 20) {
  return {.vocabulary = 31, .width = 24, .heads = 6, .head_width = 4, .ff_width = ff_width, .decoder_layers = layers};
}

inline TransformerConfig tiny_gpt2(int64_t layers = 3) {
  TransformerConfig config = gpt2_config(tiny_sizes(layers));
  config.initializer_range = 0.3;
  return config;
}

inline TransformerConfig tiny_neox(int64_t layers = 3) {
  TransformerConfig config = gpt_neox_config(tiny_sizes(layers));
  config.initializer_range = 0.3;
  return config;
}

inline TransformerConfig tiny_bloom(int64_t layers = 3) {
  TransformerConfig config = bloom_config(tiny_sizes(layers, 4 * 24));
  config.initializer_range = 0.3;
  return config;
}

// Returns a tiny model of each family, with three decoder layers.
inline std::vector<TransformerConfig> tiny_families() {
  return {tiny_t5(), tiny_mt5(), tiny_llama(3), tiny_gpt2(), tiny_neox(), tiny_bloom()};
}

// Returns tiny models in forms that the families above lack, under names of no family, so without files: of Marian,
// mBART, Qwen3 with SmolLM3's and Granite's ways, OLMo-2, UMT5, Gemma 2 and 3.
inline std::vector<TransformerConfig> tiny_forms() {
  TransformerConfig marian = layer_norm_config("marian_like", tiny_sizes(3));
  marian.encoder_decoder = true;
  marian.encoder_layers = 2;
  marian.initializer_range = 0.3;
  marian.embedding_scale = std::sqrt(static_cast<double>(marian.width));
  marian.head_bias = true;
  TransformerConfig mbart = marian;
  marian.norm_place = NormPlace::kAfterSum;
  marian.final_norm = false;
  marian.positions = Positions::kSinusoid;
  mbart.family = "mbart_like";
  mbart.embedding_norm = true;
  mbart.positions = Positions::kLearned;
  mbart.position_offset = 2;
  TransformerConfig qwen = tiny_llama(3);
  qwen.family = "qwen3_like";
  qwen.query_key_norm = QueryKeyNorm::kHead;
  qwen.projection_bias = true;
  qwen.unrotated_layers = {1};
  qwen.embedding_scale = 3;
  qwen.residual_scale = 0.4;
  TransformerConfig olmo = tiny_llama(3);
  olmo.family = "olmo2_like";
  olmo.query_key_norm = QueryKeyNorm::kWidth;
  olmo.norm_place = NormPlace::kAfterSublayer;
  TransformerConfig umt5 = tiny_mt5();
  umt5.family = "umt5_like";
  umt5.relative_bias_in_layers = true;
  TransformerConfig gemma2 = tiny_llama(3);
  gemma2.family = "gemma2_like";
  gemma2.activation = Activation::kGeluTanh;
  gemma2.norm = Norm::kRmsPlusOne;
  gemma2.norm_place = NormPlace::kAround;
  gemma2.embedding_scale = 3.3;
  gemma2.rounds_embedding_scale = true;
  gemma2.window = 3;
  gemma2.window_layers = {0, 2};
  TransformerConfig gemma3 = gemma2;
  gemma2.score_cap = 1.5;
  gemma2.logit_cap = 5;
  gemma3.family = "gemma3_like";
  gemma3.query_key_norm = QueryKeyNorm::kHead;
  gemma3.window = 5;
  gemma3.window_layers = {0, 1};
  gemma3.window_rotary = RotaryConfig{.width = 4, .base = 50};
  return {marian, mbart, qwen, olmo, umt5, gemma2, gemma3};
}

// Returns the tiny models of all families and forms.
inline std::vector<TransformerConfig> tiny_models() {
  std::vector<TransformerConfig> all = tiny_families();
  for (const TransformerConfig& form : tiny_forms()) all.push_back(form);
  return all;
}

// Returns a model with random weights; its relative biases are large enough to show whether positions are right.
inline std::unique_ptr<TransformerModel> tiny_model(const TransformerConfig& config, at::ScalarType type,
                                                    uint64_t seed = 7) {
  auto model = std::make_unique<TransformerModel>(config, seed);
  for (const auto& [name, value] : model->parameters()) {
    if (name.ends_with("relative_bias.weight")) value.mul_(8.0);
  }
  model->to(at::kCPU, type);
  return model;
}

// Returns a model whose norms and biases are random too, so that a test notices when one of them is forgotten.
inline std::unique_ptr<TransformerModel> varied_model(const TransformerConfig& config, uint64_t seed,
                                                      at::ScalarType type = at::kDouble) {
  auto model = tiny_model(config, at::kFloat, seed);
  for (const auto& [name, value] : model->parameters()) {
    if (name.ends_with("norm.weight") || name.ends_with(".bias")) {
      value.add_(normal_tensor(value.sizes().vec(), 0.2, seed, "varied/" + name, at::kFloat));
    }
  }
  model->to(at::kCPU, type);
  return model;
}

}  // namespace draftsmith::model
