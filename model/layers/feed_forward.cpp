#include "model/layers/feed_forward.h"

#include <stdexcept>

namespace draftsmith::model {
namespace {

// With gradients off the argument is a temporary of ours, so ReLU may overwrite it.
at::Tensor apply(Activation activation, at::Tensor x) {
  switch (activation) {
    case Activation::kRelu:
      return at::GradMode::is_enabled() ? at::relu(x) : x.relu_();
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kSilu:
      return at::silu(x);
  }
  throw std::logic_error("unknown activation");
}

}  // namespace

at::Tensor FeedForward::activated(const Linear& linear, const at::Tensor& x) const {
  at::Tensor y = linear(x);
  return linear.fuses(x) ? y : apply(activation_, std::move(y));
}

at::Tensor FeedForward::add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout,
                               const InputObserver& observer) const {
  const at::Tensor normed = norm_(x);
  at::Tensor inner = gate_.weight().defined() ? activated(gate_, normed) * up_(normed) : activated(up_, normed);
  if (observer) observer(inner);
  if (!dropout.active()) {
    return down_.add_to(residual, inner);
  }
  return residual + dropout(down_(inner_dropout_ ? dropout(inner) : inner));
}

std::vector<at::Tensor> FeedForward::parameters() const {
  return {norm_.weight(), norm_.bias(), gate_.weight(), gate_.bias(),
          up_.weight(),   up_.bias(),   down_.weight(), down_.bias()};
}

void FeedForward::pack(WeightArena& arena) {
  const bool gated = gate_.weight().defined();
  if (gated) {
    gate_.pack(arena, post_op(activation_));
  }
  up_.pack(arena, gated ? PostOp::kNone : post_op(activation_));
  down_.pack(arena);
}

void FeedForward::unpack() {
  gate_.unpack();
  up_.unpack();
  down_.unpack();
}

}  // namespace draftsmith::model
