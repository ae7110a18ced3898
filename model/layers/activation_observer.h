// Looks on while whole sequences pass through a model: pruning measures what neurons and heads contribute.
#pragma once

#include <functional>
#include <string>

#include "base/aten.h"

namespace draftsmith::model {

class ActivationObserver {
 public:
  virtual ~ActivationObserver() = default;
  // What the last projection of a sublayer reads: activations of the neurons [B,T,F] for "decoder.0.feed_forward", the
  // heads' contexts [B,T,H*K] for "encoder.1.self_attention". Padding is included.
  virtual void see(const std::string& sublayer, const at::Tensor& input) = 0;
};

// Is shown what a sublayer's last projection reads. Empty where nobody looks on.
using Glance = std::function<void(const at::Tensor& input)>;

}  // namespace draftsmith::model
