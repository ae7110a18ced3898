// The weights of a decoder as its steps on a CPU read them: views of a model's packed layers, which must outlive them.
#pragma once

#include <optional>
#include <vector>

#include "model/cpu/packed_weights.h"
#include "model/cpu/row_operations.h"

namespace draftsmith::model {

struct AttentionWeightsView {
  RowNorm norm;
  const PackedWeights* input = nullptr;  // D -> query, key and value side by side; of a cross-attention the query alone
  const PackedWeights* key_value = nullptr;  // of a cross-attention: encoder states -> key and value side by side
  const PackedWeights* output = nullptr;
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_width = 0;
  double scale = 1;

  int64_t inner() const { return heads * head_width; }
  // Returns the numbers of a token's keys, and of its values.
  int64_t shared_inner() const { return key_value_heads * head_width; }
};

struct FeedForwardWeightsView {
  RowNorm norm;
  const PackedWeights* gate = nullptr;  // null: none
  const PackedWeights* up = nullptr;
  const PackedWeights* down = nullptr;
  PostOp activation = PostOp::kRelu;  // of the gate, or of `up` if there is none
};

struct LayerWeightsView {
  AttentionWeightsView self;
  std::optional<AttentionWeightsView> cross;
  FeedForwardWeightsView feed_forward;
  bool parallel_residual = false;  // the feed-forward sublayer reads the layer's input
};

}  // namespace draftsmith::model
