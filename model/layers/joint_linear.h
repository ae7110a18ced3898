// Linear layers that read one input: in training one operator for all of them where one takes them.
#pragma once

#include <vector>

#include "model/layers/linear.h"

namespace draftsmith::model {

// Returns whether joint_linear() computes these layers by one operator, which sums their gradients of x itself.
bool is_joint(const at::Tensor& x, const std::vector<const Linear*>& layers);

// Returns each layer's outputs of x [...,n].
std::vector<at::Tensor> joint_linear(const at::Tensor& x, const std::vector<const Linear*>& layers);

// Returns ReLU of the layer's outputs of x, which the layer does not apply itself.
at::Tensor linear_relu(const at::Tensor& x, const Linear& layer);

}  // namespace draftsmith::model
