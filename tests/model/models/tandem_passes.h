// Small secondaries for primaries of every family, and passes over both.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/models/tandem.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {

inline std::string family_name(const testing::TestParamInfo<TransformerConfig>& info) {
  return info.param.family;
}

// Returns a configuration whose width, depth and number of heads differ from its primary's.
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

// Returns a secondary equal to its primary, which reads the primary layer by layer through unit projections.
inline std::unique_ptr<TransformerModel> secondary_like(const TransformerModel& primary) {
  std::vector<int64_t> own_layers;
  for (int64_t j = 0; j < primary.config().decoder_layers; ++j) own_layers.push_back(j);
  return make_tandem_secondary(primary, primary, {own_layers, 2, ProjectionStart::kIdentity, 1});
}

// Returns a small secondary with random projections.
inline std::unique_ptr<TransformerModel> small_secondary(const TransformerModel& primary, uint64_t seed,
                                                         at::ScalarType type = at::kDouble) {
  auto ordinary = varied_model(smaller(primary.config()), seed, at::kFloat);
  auto secondary = make_tandem_secondary(*ordinary, primary, {{}, 2, ProjectionStart::kRandom, seed});
  secondary->to(at::kCPU, type);
  return secondary;
}

// Sources and targets of a pair's passes; the source is empty for decoder-only models.
struct PairBatch {
  TokenBatch source, target;
};

inline PairBatch pair_batch(const TransformerConfig& config, const std::vector<int64_t>& lengths, uint64_t seed) {
  PairBatch batch{.target = random_batch(lengths, config.vocabulary, seed)};
  if (config.encoder_decoder) {
    std::vector<int64_t> sources;
    for (size_t b = 0; b < lengths.size(); ++b) sources.push_back(3 + static_cast<int64_t>(2 * b));
    batch.source = random_batch(sources, config.vocabulary, seed + 1);
  }
  return batch;
}

inline ForwardInput forward_input(const PairBatch& batch) {
  return {.source = batch.source, .target = batch.target};
}

// Runs the primary and returns the states that the secondary reads.
inline PrimaryStates primary_states(TransformerModel& primary, const TransformerModel& secondary,
                                    const PairBatch& batch) {
  ForwardInput input = forward_input(batch);
  input.hidden_layers = secondary.config().tandem.layer_map;
  ForwardOutput output = primary.forward(input);
  return {std::move(output.layers), std::move(output.encoder)};
}

// Returns the secondary's logits of a pass with blocks of `block` tokens. [B,T,V]
inline at::Tensor tandem_logits(TransformerModel& secondary, const PrimaryStates& states, const PairBatch& batch,
                                int64_t block) {
  ForwardInput input = forward_input(batch);
  input.primary = &states;
  input.block = block;
  return secondary.head(secondary.forward(input).hidden);
}

// Returns the largest difference at tokens that are not padding.
inline double row_difference(const at::Tensor& a, const at::Tensor& b, const std::vector<int64_t>& lengths) {
  double largest = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto r = static_cast<int64_t>(row);
    largest = std::max(largest, difference(a[r].narrow(0, 0, lengths[row]), b[r].narrow(0, 0, lengths[row])));
  }
  return largest;
}

}  // namespace draftsmith::model
