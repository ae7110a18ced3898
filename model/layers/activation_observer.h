// Observers of a pass over whole sequences: pruning measures what neurons and heads contribute.
#pragma once

#include <functional>
#include <string>

#include "base/aten.h"

namespace draftsmith::model {

// Receives the input of each sublayer's last projection: activations of the neurons [B,T,F] for
// "decoder.0.feed_forward", the heads' contexts [B,T,H*K] for "encoder.1.self_attention". Padding is included.
using ActivationObserver = std::function<void(const std::string& sublayer, const at::Tensor& input)>;

// Receives the input of one sublayer's last projection. Empty: no observer.
using InputObserver = std::function<void(const at::Tensor& input)>;

}  // namespace draftsmith::model
