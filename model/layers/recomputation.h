// Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a part of a model keeps
// its inputs alone, and is computed again in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// A part of a model: reads its inputs, and other tensors besides. It must compute the same numbers each time, and draw
// no random numbers that depend on what ran before.
using ModelPart = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// Returns part(inputs), with gradients of the inputs and of `parameters`, leaves that the part reads besides. Undefined
// tensors are allowed among both. All that the part refers to must live, unchanged, until the backward pass, which runs
// it again under the present settings of autocast. Inputs given twice have two gradients, which are added in the order
// of the inputs.
at::Tensor recomputed(ModelPart part, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& parameters);

}  // namespace draftsmith::model
