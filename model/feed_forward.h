// The feed-forward sublayer: x + dropout(W_down dropout(f(W_up norm(x)))), or with a gate f(W_gate n) * (W_up n)
// (Shazeer 2020, GLU variants).
#pragma once

#include "model/dropout.h"
#include "model/linear.h"
#include "model/norm.h"

namespace draftsmith::model {

class FeedForward {
 public:
  // `gate` is undefined unless config.gated.
  FeedForward(Activation activation, NormLayer norm, Linear gate, Linear up, Linear down)
      : activation_(activation),
        norm_(std::move(norm)),
        gate_(std::move(gate)),
        up_(std::move(up)),
        down_(std::move(down)) {}

  // residual + dropout(feed_forward(norm(x))), both [...,D]. The residual is x but where sublayers are parallel.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout) const;
  void pack(WeightArena& arena);
  void unpack();

 private:
  // f(linear(x)), the activation fused where the layer does that.
  at::Tensor activated(const Linear& linear, const at::Tensor& x) const;

  Activation activation_;
  NormLayer norm_;
  Linear gate_;
  Linear up_;
  Linear down_;
};

}  // namespace draftsmith::model
