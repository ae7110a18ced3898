// Input and output of a pass over whole sequences (training and scoring).
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "model/transformer/language_model.h"

namespace draftsmith::model {

// The states of a primary that a Tandem secondary reads, from the primary's pass over the same tokens. Gradients flow
// into tensors that require them. After the primary's forward() with hidden_layers = the secondary's layer_map, they
// are {output.layers, output.encoder}.
struct PrimaryStates {
  std::vector<at::Tensor> layers = {};  // [B,T,D_L], x^(ℓ(j)) for each layer j of the secondary
  at::Tensor encoder = {};              // [B,S,D_L], the primary's encoder states; undefined for decoder-only models
};

// Whole sequences for training or scoring with teacher forcing.
struct ForwardInput {
  TokenBatch source;                   // [B,S]; unused by decoder-only models
  TokenBatch target;                   // decoder inputs [B,T] (start token first), right padded
  std::vector<int64_t> hidden_layers;  // wanted decoder hidden states (early exits, heads)
  // For a Tandem secondary: layer j + 1 reads the primary's projected representations of tokens before the block of γ
  // tokens that a position lies in (counted within its segment), and its own from there on. An encoder-decoder
  // secondary reads the primary's encoder states and only the lengths of `source`. Without a primary a decoder-only
  // secondary reads only itself, as with a γ beyond every token.
  const PrimaryStates* primary = nullptr;
  // For a model that shares another one's encoder (model/models/shared_encoder.h): the other model's encoder states
  // [B,S,D_L], of which `source` gives the lengths alone.
  at::Tensor shared_encoder = {};
  int64_t block = 0;      // γ of this pass; 0: config.tandem.block
  at::Tensor added = {};  // [B,T,D] added to the embedded targets (Deep Tandem's sketch); undefined: nothing
};

struct ForwardOutput {
  at::Tensor hidden;               // [B,T,D] after the final norm and output scale: what the head reads
  std::vector<at::Tensor> layers;  // one [B,T,D] a wanted layer, before the final norm
  at::Tensor encoder;              // [B,S,D] encoder states that were cross-attended to; undefined: decoder-only
};

}  // namespace draftsmith::model
