// Decode state of a transformer: preallocated K/V caches with a length per row and layer, and the layout of a step's
// tokens over them (positions, slots, visibility), branch slots included.
#pragma once

#include "model/transformer/language_model.h"

namespace draftsmith::model {

struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Where the L tokens of a step lie: their positions, the cache slots their K/V go to, and what each may see.
// Made by TransformerState::append or ::siblings, then shared by all layers of the step.
struct StepLayout {
  int64_t tokens = 0;               // L
  std::vector<int64_t> base;        // [B] first slot of each row
  std::vector<int64_t> new_tokens;  // [B]
  bool siblings = false;            // the L tokens are alternatives for one position, blind to each other
};

class TransformerState : public DecodeState {
 public:
  // Layout of the next new_tokens[b] tokens of each row, continuing where layer `layer` stands.
  virtual StepLayout append(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer = 0) const = 0;
  // Layout of `branches` siblings, all at the next position of layer `layer`; they see the prefix and themselves.
  virtual StepLayout siblings(int64_t branches, int64_t layer = 0) const = 0;
  // Keeps sibling chosen[b] of each row in the given layers as the row's next token (its K/V move to the position's own
  // slot) and advances those layers by one; -1 drops all of the row's siblings.
  virtual void select_branch(LayerRange layers, const StepLayout& layout, std::span<const int64_t> chosen) = 0;
  virtual int64_t layer_length(int64_t layer, int64_t row) const = 0;
  // Layers that ran on this state since it began: one for each new token of a row (a sibling is one) and each layer.
  // K/V that were only written count nothing.
  virtual int64_t layer_runs() const = 0;
  // Lowers the lengths of a range of layers only.
  virtual void rollback_layers(LayerRange layers, std::span<const int64_t> lengths) = 0;
  // K or V of a layer's valid slots, [B,H,max length,K]: for tests that compare caches.
  virtual at::Tensor keys(int64_t layer) const = 0;
  virtual at::Tensor values(int64_t layer) const = 0;
};

}  // namespace draftsmith::model
