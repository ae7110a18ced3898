#include "model/layers/linear.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/autocast_mode.h>

#include "model/layers/mixed_products.h"

namespace draftsmith::model {
namespace {

at::Tensor converted(const at::Tensor& x, const at::Tensor& weight) {
  if (x.scalar_type() == weight.scalar_type() || at::autocast::is_autocast_enabled(x.device().type())) {
    return x;
  }
  return x.to(weight.scalar_type());
}

bool decodes_on_device(const at::Tensor& x) {
  return !x.is_cpu() && x.numel() > 0 && !at::GradMode::is_enabled() &&
         !at::autocast::is_autocast_enabled(x.device().type());
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  const at::Tensor input = converted(x, weight_);
  if (few_rows(input)) return linear_rows(input, {}, {weight_, bias_}, then_);
  if (use_packed(input)) {
    return own_->multiply(input, then_ == PostOp::kRelu ? PackedWeights::Finish::kRelu : PackedWeights::Finish::kNone);
  }
  const at::Tensor& weight = plain_weight();
  if (!bias_.defined() && multiplies_mixed(input, weight)) return mixed_products(input, {weight}).front();
  return at::linear(input, weight, bias_.defined() ? std::optional(bias_) : std::nullopt);
}

at::Tensor Linear::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  const at::Tensor input = converted(x, weight_);
  const bool alike = residual.scalar_type() == weight_.scalar_type();
  if (alike && then_ == PostOp::kNone) {
    if (few_rows(input)) return linear_rows(input, {}, {weight_, bias_}, then_, residual);
    if (use_packed(input) && input.numel() > 0) return own_->multiply(input, PackedWeights::Finish::kNone, residual);
  }
  if (!bias_.defined() && residual.scalar_type() == at::kFloat && multiplies_mixed(input, weight_)) {
    return mixed_product_added(residual, input, plain_weight());
  }
  // A product on a device adds the residual itself. (Under autocast it would round the residual.)
  if (alike && !bias_.defined() && decodes_on_device(input) && residual.is_contiguous() && input.is_contiguous()) {
    return residual.flatten(0, -2).addmm(input.flatten(0, -2), plain_weight().t()).view(residual.sizes());
  }
  return residual + (*this)(input);
}

at::Tensor Linear::after(const NormLayer& norm, const at::Tensor& x) const {
  if (!few_rows(x)) return (*this)(norm(x));
  const auto [input, joined] = joined_norm(norm, x);
  return linear_rows(input, joined, {weight_, bias_}, then_);
}

at::Tensor Linear::gated(const NormLayer& norm, const Linear& up, const at::Tensor& x) const {
  const auto [input, joined] = joined_norm(norm, x);
  return gated_rows(input, joined, {weight_, bias_}, {up.weight_, up.bias_}, then_);
}

// Returns x and the norm where one kernel computes both; elsewhere the normed input.
std::pair<at::Tensor, InputNorm> Linear::joined_norm(const NormLayer& norm, const at::Tensor& x) const {
  const InputNorm rms = norm.rms();
  const at::ScalarType type = weight_.scalar_type();
  if (rms.weight.defined() && rms.weight.scalar_type() == type && x.scalar_type() == type) return {x, rms};
  return {converted(norm(x), weight_), InputNorm()};
}

bool Linear::few_rows(const at::Tensor& x) const {
  return weight_.defined() && decodes_on_device(x) && prefers_linear_rows(x.numel() / x.size(-1), weight_);
}

const at::Tensor& Linear::plain_weight() const {
  if (weight_.is_meta()) {
    throw std::logic_error("a layer that was packed on loading has no plain weight, so no gradients");
  }
  return weight_;
}

void Linear::pack(WeightArena& arena, PostOp then) {
  const at::NoGradGuard no_grad;
  const bool only_packed = arena.only_packed().has_value();
  const at::ScalarType type = arena.only_packed().value_or(weight_.scalar_type());
  // Products of bf16 are not those of LibTorch: only who loads a model for decoding wants them.
  own_ = only_packed || type == at::kFloat ? packed_weights(weight_, bias_, type, arena) : nullptr;
  if (!weight_.device().is_cpu()) {
    then_ = then;  // of few rows
  } else if (own_) {
    then_ = then == PostOp::kRelu ? then : PostOp::kNone;
    if (only_packed) drop_plain();
  }
}

void Linear::drop_plain() {
  const at::ScalarType type = own_ ? at::kFloat : weight_.scalar_type();
  weight_ = at::empty(weight_.sizes(), at::TensorOptions(at::kMeta).dtype(type));
}

namespace {

bool is_mixed(const at::Tensor& x, const Linear& layer) {
  return !layer.bias().defined() && !layer.use_packed(x) && multiplies_mixed(x, layer.weight());
}

}  // namespace

std::vector<at::Tensor> joint_linear(const at::Tensor& x, const std::vector<const Linear*>& layers) {
  std::vector<at::Tensor> tensors;
  if (std::ranges::all_of(layers, [&](const Linear* layer) { return is_mixed(x, *layer); })) {
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
