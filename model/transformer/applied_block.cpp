#include "model/transformer/applied_block.h"

#include <algorithm>
#include <memory>

#include <ATen/core/grad_mode.h>

#include "model/layers/recomputation.h"

namespace draftsmith::model {
namespace {

// Tensors of a block's run that may have gradients, in the order in which a kept block's backward pass adds them.
enum BlockInput : size_t { kHidden, kMemoryOfValues, kMemoryOfKeys, kSelfBias, kPrimary, kBlockInputs };

}  // namespace

at::Tensor apply_block(const Block& block, const at::Tensor& x, const SequencePass& pass, const at::Tensor& primary) {
  if (!pass.dropout->recompute() || !at::GradMode::is_enabled() || pass.observer) return block(x, pass, primary);
  std::vector<at::Tensor> inputs(kBlockInputs);
  inputs[kHidden] = x;
  inputs[kMemoryOfValues] = inputs[kMemoryOfKeys] = pass.memory.keys;
  inputs[kSelfBias] = pass.self_bias.additive;
  inputs[kPrimary] = primary;
  const std::vector<at::Tensor> parameters = block.parameters();
  const auto learns = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  const bool records =
      std::any_of(inputs.begin(), inputs.end(), learns) || std::any_of(parameters.begin(), parameters.end(), learns);
  if (!records) return block(x, pass, primary);

  const auto after = std::make_shared<Dropout>(*pass.dropout);
  const auto part = [&block, pass, before = *pass.dropout, after](const std::vector<at::Tensor>& given) {
    Dropout dropout = before;
    SequencePass own = pass;
    own.dropout = &dropout;
    own.memory = {.keys = given[kMemoryOfKeys], .values = given[kMemoryOfValues]};
    own.self_bias.additive = given[kSelfBias];
    const at::Tensor output = block(given[kHidden], own, given[kPrimary]);
    *after = dropout;
    return output;
  };
  const at::Tensor output = recomputed(part, inputs, parameters);
  *pass.dropout = *after;
  return output;
}

}  // namespace draftsmith::model
