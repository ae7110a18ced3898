// The feed-forward sublayer: x + dropout(W_down f(W_up norm(x))), or with a gate f(W_gate n) * (W_up n) (Shazeer 2020,
// GLU variants). T5 has another dropout before W_down.
#pragma once

#include <optional>
#include <vector>

#include "model/cpu/packed_weights.h"
#include "model/layers/dropout.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"

namespace draftsmith::model {

struct FeedForwardWeights {
  NormLayer norm;
  Linear gate;  // undefined unless config.gated
  Linear up;
  Linear down;
};

class FeedForward {
 public:
  FeedForward(Activation activation, bool inner_dropout, FeedForwardWeights weights)
      : activation_(activation),
        inner_dropout_(inner_dropout),
        norm_(std::move(weights.norm)),
        gate_(std::move(weights.gate)),
        up_(std::move(weights.up)),
        down_(std::move(weights.down)) {}

  // Returns residual + dropout(feed_forward(norm(x))), both [...,D]. The residual is x unless sublayers are parallel.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout) const;
  // Returns what steps on CPUs read; nothing if it is not packed for them.
  std::optional<FeedForwardWeightsView> packed_view() const;
  void pack(WeightArena& arena);

 private:
  // Returns f(linear(x)), with the activation fused if the layer supports it.
  at::Tensor activated(const Linear& linear, const at::Tensor& x) const;
  // Returns the inputs of W_down for x before its norm: [...,D] -> [...,F].
  at::Tensor inner_of(const at::Tensor& x) const;

  Activation activation_;
  bool inner_dropout_;
  NormLayer norm_;
  Linear gate_;
  Linear up_;
  Linear down_;
};

}  // namespace draftsmith::model
