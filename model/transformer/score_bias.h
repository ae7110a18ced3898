// Additive biases of attention scores in the form that attention reads.
#pragma once

#include "model/layers/attention.h"

namespace draftsmith::model {

// Returns a bias of scores of this shape, [B,H,T,S], to which `additive` broadcasts; undefined: none. Where autocast is
// on, its rounded form is made here, once for all layers of a device.
ScoreBias score_bias(const at::Tensor& additive, at::IntArrayRef shape, bool fused);

}  // namespace draftsmith::model
