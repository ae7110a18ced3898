// Small primaries and secondaries of every family, for tests of Tandem models and of what is built like them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "model/kinds/tandem.h"
#include "tests/model/transformer/transformer_fixtures.h"

namespace draftsmith::model {

inline TransformerConfig tiny_gated_t5() {
  TransformerConfig config = tiny_config();
  config.family = "mt5";
  config.gated = true;
  config.activation = Activation::kGeluTanh;
  config.tied_head = false;
  config.output_scale = 1.0;
  return config;
}

inline TransformerConfig tiny_layer_norm(const std::string& family) {
  TransformerConfig config = tiny_llama(3);
  config.family = family;
  config.kv_heads = 0;
  config.width = 24;  // heads * head_width, as these families want
  config.gated = false;
  config.norm = Norm::kLayer;
  config.norm_epsilon = 1e-5;
  config.activation = Activation::kGeluTanh;
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  return config;
}

inline TransformerConfig tiny_gpt2() {
  TransformerConfig config = tiny_layer_norm("gpt2");
  config.positions = Positions::kLearned;
  return config;
}

inline TransformerConfig tiny_neox() {
  TransformerConfig config = tiny_layer_norm("gpt_neox");
  config.rotary.width = 2;
  config.parallel_residual = true;
  config.tied_head = false;
  return config;
}

inline TransformerConfig tiny_bloom() {
  TransformerConfig config = tiny_layer_norm("bloom");
  config.positions = Positions::kAlibi;
  config.embedding_norm = true;
  config.max_positions = 0;
  return config;
}

inline std::vector<TransformerConfig> tiny_families() {
  return {tiny_config(), tiny_gated_t5(), tiny_llama(3), tiny_gpt2(), tiny_neox(), tiny_bloom()};
}

inline std::string family_name(const testing::TestParamInfo<TransformerConfig>& info) {
  return info.param.family;
}

// Norms and biases are random too, so that none of them may be forgotten unseen.
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

// Another width, depth and number of heads than its primary's.
inline TransformerConfig smaller(TransformerConfig config) {
  config.heads = 2;
  config.kv_heads = config.kv_heads > 0 ? 1 : 0;
  config.head_width = 8;
  config.width = 16;
  config.ff_width = 20;
  config.decoder_layers = 2;
  if (config.positions == Positions::kRotary) config.rotary.width = 4;
  return config;
}

// The primary as its own secondary, reading itself layer by layer through unit projections.
inline std::unique_ptr<TransformerModel> secondary_like(const TransformerModel& primary) {
  std::vector<int64_t> own_layers;
  for (int64_t j = 0; j < primary.config().decoder_layers; ++j) own_layers.push_back(j);
  return make_tandem_secondary(primary, primary, {own_layers, 2, ProjectionStart::kIdentity, 1});
}

// A small secondary with random projections.
inline std::unique_ptr<TransformerModel> small_secondary(const TransformerModel& primary, uint64_t seed,
                                                         at::ScalarType type = at::kDouble) {
  auto ordinary = varied_model(smaller(primary.config()), seed, at::kFloat);
  auto secondary = make_tandem_secondary(*ordinary, primary, {{}, 2, ProjectionStart::kRandom, seed});
  secondary->to(at::kCPU, type);
  return secondary;
}

// Sources and targets of a pair's passes; decoder-only models leave the source.
struct PairBatch {
  TokenBatch source;
  TokenBatch target;
};

inline PairBatch pair_batch(const TransformerConfig& config, const std::vector<int64_t>& lengths, uint64_t seed) {
  PairBatch batch;
  batch.target = random_batch(lengths, config.vocabulary, seed);
  if (config.encoder_decoder) {
    std::vector<int64_t> sources;
    for (size_t b = 0; b < lengths.size(); ++b) sources.push_back(3 + static_cast<int64_t>(2 * b));
    batch.source = random_batch(sources, config.vocabulary, seed + 1);
  }
  return batch;
}

inline ForwardInput forward_input(const PairBatch& batch) {
  ForwardInput input;
  input.source = batch.source;
  input.target = batch.target;
  return input;
}

// What the secondary reads of its primary's pass.
inline PrimaryStates primary_states(TransformerModel& primary, const TransformerModel& secondary,
                                    const PairBatch& batch) {
  ForwardInput input = forward_input(batch);
  input.hidden_layers = secondary.config().tandem.layer_map;
  ForwardOutput output = primary.forward(input);
  return {std::move(output.layers), std::move(output.encoder)};
}

// The secondary's logits of a pass with blocks of `block`. [B,T,V]
inline at::Tensor tandem_logits(TransformerModel& secondary, const PrimaryStates& states, const PairBatch& batch,
                                int64_t block) {
  ForwardInput input = forward_input(batch);
  input.primary = &states;
  input.block = block;
  return secondary.head(secondary.forward(input).hidden);
}

// The largest difference at the tokens that rows have.
inline double row_difference(const at::Tensor& a, const at::Tensor& b, const std::vector<int64_t>& lengths) {
  double largest = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto r = static_cast<int64_t>(row);
    largest = std::max(largest, difference(a[r].narrow(0, 0, lengths[row]), b[r].narrow(0, 0, lengths[row])));
  }
  return largest;
}

}  // namespace draftsmith::model
