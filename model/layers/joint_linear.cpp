#include "model/layers/joint_linear.h"

#include <algorithm>

#include "model/layers/mixed_products.h"

namespace draftsmith::model {
namespace {

bool is_mixed(const at::Tensor& x, const Linear& layer) {
  return !layer.bias().defined() && !layer.use_packed(x) && multiplies_mixed(x, layer.weight());
}

}  // namespace

bool is_joint(const at::Tensor& x, const std::vector<const Linear*>& layers) {
  return std::all_of(layers.begin(), layers.end(), [&](const Linear* layer) { return is_mixed(x, *layer); });
}

std::vector<at::Tensor> joint_linear(const at::Tensor& x, const std::vector<const Linear*>& layers) {
  std::vector<at::Tensor> tensors;
  if (is_joint(x, layers)) {
    for (const Linear* layer : layers) tensors.push_back(layer->weight());
    return mixed_products(x, tensors);
  }
  for (const Linear* layer : layers) tensors.push_back((*layer)(x));
  return tensors;
}

at::Tensor linear_relu(const at::Tensor& x, const Linear& layer) {
  if (is_mixed(x, layer)) return mixed_products(x, {layer.weight()}, /*relu=*/true).front();
  return applied(PostOp::kRelu, layer(x));
}

}  // namespace draftsmith::model
