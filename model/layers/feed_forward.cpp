#include "model/layers/feed_forward.h"

#include "model/layers/linear.h"

namespace draftsmith::model {

at::Tensor FeedForward::activated(const Linear& linear, const at::Tensor& x) const {
  if (linear.fuses(x)) return linear(x);
  return activation_ == Activation::kRelu ? linear_relu(x, linear) : applied(activation_, linear(x));
}

at::Tensor FeedForward::inner_of(const at::Tensor& x) const {
  const bool gated = gate_.weight().defined();
  if ((gated ? gate_ : up_).finishes(x)) return gated ? gate_.gated(norm_, up_, x) : up_.after(norm_, x);
  const at::Tensor normed = norm_(x);
  if (!gated) return activated(up_, normed);
  if (gate_.fuses(normed)) return gate_(normed) * up_(normed);
  const std::vector<at::Tensor> parts = joint_linear(normed, {&gate_, &up_});
  return applied(activation_, parts[0]) * parts[1];
}

at::Tensor FeedForward::add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout) const {
  const at::Tensor inner = inner_of(x);
  if (!dropout.active()) {
    return down_.add_to(residual, inner);
  }
  return residual + dropout(down_(inner_dropout_ ? dropout(inner) : inner));
}

std::optional<FeedForwardWeightsView> FeedForward::packed_view() const {
  const bool gated = gate_.weight().defined();
  FeedForwardWeightsView view{.norm = norm_.row_norm(),
                              .gate = gate_.own_weights(),
                              .up = up_.own_weights(),
                              .down = down_.own_weights(),
                              .activation = activation_};
  const bool whole = view.norm.weight != nullptr && view.up != nullptr && view.down != nullptr;
  if (!whole || gated != (view.gate != nullptr)) return std::nullopt;
  return view;
}

void FeedForward::pack(WeightArena& arena) {
  const bool gated = gate_.weight().defined();
  if (gated) {
    gate_.pack(arena, activation_);
  }
  up_.pack(arena, gated ? PostOp::kNone : activation_);
  down_.pack(arena);
}

}  // namespace draftsmith::model
