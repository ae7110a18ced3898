// Operations that a linear layer applies to its outputs in the same pass.
#pragma once

#include "base/aten.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// The kernels of model/layers/kernels/linear_rows.cu know these by number.
enum class PostOp { kNone, kRelu, kGelu, kGeluTanh, kSilu };

PostOp post_op(Activation activation);

// Returns f(x), by LibTorch's operators. With gradients off it may overwrite x.
at::Tensor applied(PostOp then, at::Tensor x);

}  // namespace draftsmith::model
