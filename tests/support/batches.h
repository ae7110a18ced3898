// Batches of token ids for steps and passes of transformers.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Returns random tokens 2..V-1, right padded with 0.
inline TokenBatch random_batch(const std::vector<int64_t>& lengths, int64_t vocabulary, uint64_t seed) {
  int64_t longest = 0;
  for (const int64_t length : lengths) longest = std::max(longest, length);
  std::mt19937_64 random(seed);
  const at::Tensor tokens = at::zeros({static_cast<int64_t>(lengths.size()), longest}, at::kLong);
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t t = 0; t < lengths[b]; ++t) {
      tokens[static_cast<int64_t>(b)][t] = static_cast<int64_t>(2 + random() % static_cast<uint64_t>(vocabulary - 2));
    }
  }
  return {tokens, lengths};
}

// Returns row b of a batch alone, without its padding.
inline TokenBatch single(const TokenBatch& batch, int64_t b) {
  const int64_t length = batch.lengths[static_cast<size_t>(b)];
  return {batch.tokens.narrow(0, b, 1).narrow(1, 0, length), {length}};
}

// Returns the logits of a pass over whole sequences. [B,T,V]
inline at::Tensor full_logits(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  return model.head(model.forward({source, target, {}}).hidden);
}

inline DecoderState& transformer_state(DecodeState& state) {
  return dynamic_cast<DecoderState&>(state);
}

// Returns the keys of a layer's valid slots, or by &LayerCache::values its values, zeros behind a row's end.
// [B,H,max length,K]
inline at::Tensor cached(const DecoderState& state, int64_t layer, at::Tensor LayerCache::*part = &LayerCache::keys) {
  const LayerCache& from = state.cache(layer);
  const at::Tensor rows = at::tensor(state.cache_rows(), at::kLong);
  at::Tensor slots = (from.*part).narrow(2, 0, *std::ranges::max_element(from.lengths)).index_select(0, rows);
  for (int64_t b = 0; b < state.rows(); ++b) {
    const int64_t length = from.lengths[static_cast<size_t>(b)];
    slots.select(0, b).narrow(1, length, slots.size(2) - length).zero_();
  }
  return slots;
}

// Returns a step that adds a list of tokens to each row, right padded inside.
inline StepInput step_input(const std::vector<std::vector<int64_t>>& rows, Logits logits = Logits::kAll) {
  size_t longest = 1;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  StepInput input{.logits = logits};
  input.tokens = at::full({static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, 1, at::kLong);
  for (size_t b = 0; b < rows.size(); ++b) {
    input.new_tokens.push_back(static_cast<int64_t>(rows[b].size()));
    for (size_t j = 0; j < rows[b].size(); ++j) {
      input.tokens[static_cast<int64_t>(b)][static_cast<int64_t>(j)] = rows[b][j];
    }
  }
  return input;
}

// Returns the tokens [begin, end) of a batch row.
inline std::vector<int64_t> slice(const TokenBatch& batch, size_t row, int64_t begin, int64_t end) {
  std::vector<int64_t> out;
  for (int64_t t = begin; t < end; ++t) out.push_back(batch.tokens[static_cast<int64_t>(row)][t].item<int64_t>());
  return out;
}

}  // namespace draftsmith::model
