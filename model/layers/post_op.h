// Operations that a linear layer applies to its outputs in the same pass, and soft caps.
#pragma once

#include <stdexcept>

#include <ATen/core/grad_mode.h>

#include "base/aten.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// Returns f(x), by LibTorch's operators. With gradients off it may overwrite x.
inline at::Tensor applied(PostOp then, at::Tensor x) {
  switch (then) {
    case PostOp::kNone:
      return x;
    case PostOp::kRelu:
      return at::GradMode::is_enabled() ? at::relu(x) : x.relu_();
    case PostOp::kGelu:
      return at::gelu(x);
    case PostOp::kGeluTanh:
      return at::gelu(x, "tanh");
    case PostOp::kSilu:
      return at::silu(x);
  }
  throw std::logic_error("unknown post-operation");
}

// Returns c tanh(x / c); x itself where the cap c is 0.
inline at::Tensor soft_capped(const at::Tensor& x, double cap) {
  return cap == 0 ? x : at::tanh(x / cap) * cap;
}

}  // namespace draftsmith::model
