// Small models and batches that the transformer's tests share.
#pragma once

#include <memory>
#include <random>

#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Odd sizes on purpose: H*K differs from D, encoder and decoder differ in depth, distances pass the last bucket.
inline TransformerConfig tiny_config() {
  TransformerConfig config;
  config.family = "t5";
  config.vocabulary = 23;
  config.width = 20;
  config.heads = 3;
  config.head_width = 6;
  config.ff_width = 28;
  config.encoder_layers = 2;
  config.decoder_layers = 3;
  config.relative_buckets = 8;
  config.relative_max_distance = 12;
  config.output_scale = 0.3;
  return config;
}

// Decoder-only, with keys and values that two heads share.
inline TransformerConfig tiny_llama(int64_t layers = 2) {
  TransformerConfig config;
  config.family = "llama";
  config.encoder_decoder = false;
  config.vocabulary = 31;
  config.width = 12;
  config.heads = 6;
  config.kv_heads = 3;
  config.head_width = 4;
  config.ff_width = 20;
  config.decoder_layers = layers;
  config.gated = true;
  config.activation = Activation::kSilu;
  config.positions = Positions::kRotary;
  config.rotary.width = 4;
  config.attention_scale = 0.5;
  config.initializer_range = 0.3;
  config.max_positions = 64;
  return config;
}

inline std::unique_ptr<TransformerModel> tiny_model(const TransformerConfig& config, at::ScalarType type,
                                                    uint64_t seed = 7) {
  auto model = std::make_unique<TransformerModel>(config, seed);
  // Initial relative biases are small; larger ones show whether positions are right.
  for (const auto& [name, value] : model->parameters()) {
    if (name.ends_with("relative_bias.weight")) {
      value.mul_(8.0);
    }
  }
  model->to(at::kCPU, type);
  return model;
}

// Random tokens 2..V-1, right padded with 0.
inline TokenBatch random_batch(const std::vector<int64_t>& lengths, int64_t vocabulary, uint64_t seed) {
  int64_t longest = 0;
  for (const int64_t length : lengths) {
    longest = std::max(longest, length);
  }
  std::mt19937_64 random(seed);
  const at::Tensor tokens = at::zeros({static_cast<int64_t>(lengths.size()), longest}, at::kLong);
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t t = 0; t < lengths[b]; ++t) {
      tokens[static_cast<int64_t>(b)][t] = static_cast<int64_t>(2 + random() % static_cast<uint64_t>(vocabulary - 2));
    }
  }
  return {tokens, lengths};
}

// Row b of a batch alone, without its padding.
inline TokenBatch single(const TokenBatch& batch, int64_t b) {
  const int64_t length = batch.lengths[static_cast<size_t>(b)];
  return {batch.tokens.narrow(0, b, 1).narrow(1, 0, length), {length}};
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

inline DecoderState& transformer_state(DecodeState& state) {
  return dynamic_cast<DecoderState&>(state);
}

// Steps row-wise lists of tokens (ragged: right padded inside).
inline StepInput step_input(const std::vector<std::vector<int64_t>>& rows, Logits logits = Logits::kAll) {
  size_t longest = 1;
  for (const auto& row : rows) {
    longest = std::max(longest, row.size());
  }
  StepInput input;
  input.logits = logits;
  input.tokens = at::full({static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, 1, at::kLong);
  for (size_t b = 0; b < rows.size(); ++b) {
    input.new_tokens.push_back(static_cast<int64_t>(rows[b].size()));
    for (size_t j = 0; j < rows[b].size(); ++j) {
      input.tokens[static_cast<int64_t>(b)][static_cast<int64_t>(j)] = rows[b][j];
    }
  }
  return input;
}

// The tokens [begin, end) of a batch row.
inline std::vector<int64_t> slice(const TokenBatch& batch, size_t row, int64_t begin, int64_t end) {
  std::vector<int64_t> out;
  for (int64_t t = begin; t < end; ++t) {
    out.push_back(batch.tokens[static_cast<int64_t>(row)][t].item<int64_t>());
  }
  return out;
}

}  // namespace draftsmith::model
