// Linear layers of training steps on CPUs under autocast in bf16 (Micikevicius et al. 2018): products of bf16, sums,
// weights and their gradients in fp32. Layers of one input are one operator, where LibTorch's autocast takes a dozen
// for each layer, which cost a small model more than its products.
#pragma once

#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// Returns whether the functions below take the input and the weight of a layer: on a CPU with products of bf16
// (base/bf16_product.h), under autocast in bf16, where a gradient is recorded; x fp32 or bf16, weight fp32.
bool multiplies_mixed(const at::Tensor& x, const at::Tensor& weight);

// Returns x W^T of each weight, all after ReLU if `relu`: x [...,n], W [m,n] fp32 -> bf16 [...,m].
std::vector<at::Tensor> mixed_products(const at::Tensor& x, const std::vector<at::Tensor>& weights, bool relu = false);

// Returns residual + x W^T: x [...,n], W [m,n], residual fp32 [...,m] -> fp32 [...,m].
at::Tensor mixed_product_added(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight);

}  // namespace draftsmith::model
