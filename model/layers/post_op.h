// Operations that a linear layer applies to its outputs in the same pass.
#pragma once

#include "base/aten.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// Returns f(x), by LibTorch's operators. With gradients off it may overwrite x.
at::Tensor applied(PostOp then, at::Tensor x);

}  // namespace draftsmith::model
