// A step through some of the decoder's layers: early exits draft with the first ones, and verify with the others.
#pragma once

#include <cstdint>
#include <span>

#include "model/layers/step_layout.h"
#include "model/transformer/language_model.h"

namespace draftsmith::model {

// L tokens a row, or the output of the layer before.
struct StepPart {
  LayerRange layers;
  at::Tensor tokens = {};                       // int64 [B,L] where layers begin at 0
  at::Tensor hidden = {};                       // [B,L,D] input of the first layer; undefined: tokens are
  Logits logits = Logits::kNone;                // of the last layer's output, by the model's own final norm and head
  std::span<const int64_t> hidden_layers = {};  // wanted, as in StepInput, from layers.begin to layers.end
};

}  // namespace draftsmith::model
