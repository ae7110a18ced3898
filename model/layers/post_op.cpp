#include "model/layers/post_op.h"

#include <stdexcept>

#include <ATen/core/grad_mode.h>

namespace draftsmith::model {

at::Tensor applied(PostOp then, at::Tensor x) {
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

}  // namespace draftsmith::model
