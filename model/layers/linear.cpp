#include "model/layers/linear.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "model/cpu/float_matrix.h"
#include "model/cpu/int8_matrix.h"
#include "model/layers/mixed_products.h"

namespace draftsmith::model {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;
using PointwiseSignature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                      c10::string_view, Scalars, std::optional<c10::string_view>);
using AddSignature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const std::optional<at::Tensor>&, c10::string_view);

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

// Parameters of a post-operation for oneDNN.
struct Attribute {
  c10::string_view name;
  std::optional<c10::string_view> algorithm;
};

Attribute attribute(PostOp then) {
  switch (then) {
    case PostOp::kNone:
      return {"none", std::nullopt};
    case PostOp::kRelu:
      return {"relu", std::nullopt};
    case PostOp::kGelu:
      return {"gelu", "none"};
    case PostOp::kGeluTanh:
      return {"gelu", "tanh"};
    case PostOp::kSilu:
      return {"swish", std::nullopt};
  }
  throw std::logic_error("unknown post-operation");
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const std::optional<at::Tensor>& bias,
                         PostOp then) {
  static const auto op = find<PointwiseSignature>("mkldnn::_linear_pointwise", "");
  static const Scalars no_scalars;
  const Attribute attr = attribute(then);
  return op.call(x, packed, bias, attr.name, no_scalars, attr.algorithm);
}

at::Tensor packed_linear_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& packed,
                             const std::optional<at::Tensor>& bias) {
  static const auto op = find<AddSignature>("mkldnn::_linear_pointwise", "binary");
  return op.call(x, residual, packed, bias, "add");
}

at::Tensor prepacked(const at::Tensor& weight) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_linear_weight", "");
  // Boxed: the typed call's optional<SymInt> sets off a false warning of g++ 12.
  torch::jit::Stack stack{weight.detach().contiguous().to_mkldnn(), c10::IValue()};
  op.callBoxed(&stack);
  return stack.front().toTensor();
}

at::Tensor converted(const at::Tensor& x, const at::Tensor& weight) {
  if (x.scalar_type() == weight.scalar_type() || at::autocast::is_autocast_enabled(x.device().type())) {
    return x;
  }
  return x.to(weight.scalar_type());
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  const at::Tensor input = converted(x, weight_);
  if (few_rows(input)) return linear_rows(input, {}, {weight_, bias_}, then_);
  if (!use_packed(input)) {
    const at::Tensor& weight = plain_weight();
    if (!bias_.defined() && multiplies_mixed(input, weight)) return mixed_products(input, {weight}).front();
    return at::linear(input, weight, optional_bias());
  }
  if (own_) {
    return own_->multiply(input, then_ == PostOp::kRelu ? PackedWeights::Finish::kRelu : PackedWeights::Finish::kNone);
  }
  return input.numel() == 0 ? output_like(input, weight_.size(0))
                            : packed_linear(input, packed_, optional_bias(), then_);
}

at::Tensor Linear::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  const at::Tensor input = converted(x, weight_);
  if (few_rows(input) && then_ == PostOp::kNone && residual.scalar_type() == weight_.scalar_type()) {
    return linear_rows(input, {}, {weight_, bias_}, then_, residual);
  }
  if (!use_packed(input) || then_ != PostOp::kNone || residual.scalar_type() != weight_.scalar_type() ||
      input.numel() == 0) {
    const bool mixed = !bias_.defined() && residual.scalar_type() == at::kFloat && multiplies_mixed(input, weight_);
    if (mixed) return mixed_product_added(residual, input, plain_weight());
    return adds_in_product(residual, input) ? added_product(residual, input) : residual + (*this)(input);
  }
  return own_ ? own_->add_to(residual, input)
              : packed_linear_add(residual.contiguous(), input, packed_, optional_bias());
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
  if (joins(norm, x)) return {x, norm.rms()};
  return {converted(norm(x), weight_), InputNorm()};
}

// Whether one kernel computes a norm and the layer.
bool Linear::joins(const NormLayer& norm, const at::Tensor& x) const {
  const at::Tensor rms = norm.rms().weight;
  const at::ScalarType type = weight_.scalar_type();
  return rms.defined() && rms.scalar_type() == type && x.scalar_type() == type;
}

bool Linear::few_rows(const at::Tensor& x) const {
  return weight_.defined() && !x.is_cpu() && x.numel() > 0 && prefers_linear_rows(x.numel() / x.size(-1), weight_) &&
         !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(x.device().type());
}

// Elsewhere than on CPUs a product adds the residual itself. (Under autocast it would round the residual.)
bool Linear::adds_in_product(const at::Tensor& residual, const at::Tensor& input) const {
  return !input.is_cpu() && !bias_.defined() && !at::GradMode::is_enabled() && input.numel() > 0 &&
         residual.scalar_type() == weight_.scalar_type() && residual.is_contiguous() && input.is_contiguous() &&
         !at::autocast::is_autocast_enabled(input.device().type());
}

at::Tensor Linear::added_product(const at::Tensor& residual, const at::Tensor& input) const {
  return residual.flatten(0, -2).addmm(input.flatten(0, -2), plain_weight().t()).view(residual.sizes());
}

const at::Tensor& Linear::plain_weight() const {
  if (weight_.is_meta()) {
    throw std::logic_error("a layer that was packed on loading has no plain weight, so no gradients");
  }
  return weight_;
}

void Linear::pack(WeightArena& arena, PostOp then) {
  unpack();
  const at::NoGradGuard no_grad;
  const bool only_packed = arena.only_packed().has_value();
  const at::ScalarType type = arena.only_packed().value_or(weight_.scalar_type());
  const bool packs = weight_.device().is_cpu() && at::globalContext().userEnabledMkldnn();
  if (type == at::kChar) {
    own_ = Int8Matrix::pack(weight_, bias_, arena);
  } else if (type == at::kBFloat16 && only_packed) {
    own_ = Bf16Matrix::pack(weight_, bias_, arena);
  } else if (packs && type == at::kFloat) {
    own_ = Fp32Matrix::pack(weight_, bias_, arena);
  }
  const bool fp32 = type == at::kFloat || (only_packed && number_type(type, weight_.device()) == at::kFloat);
  if (!own_ && fp32) {
    weight_ = weight_.to(at::kFloat);
  }
  if (!weight_.device().is_cpu()) {
    then_ = then;  // of few rows
  } else if (own_) {
    then_ = then == PostOp::kRelu ? then : PostOp::kNone;
  } else if (packs && (fp32 || weight_.scalar_type() == at::kBFloat16)) {
    pack_with_onednn(then);
  }
  if (packed() && only_packed) {
    drop_plain();
  }
}

void Linear::drop_plain() {
  const at::ScalarType type = own_ ? at::kFloat : weight_.scalar_type();
  weight_ = at::empty(weight_.sizes(), at::TensorOptions(at::kMeta).dtype(type));
}

void Linear::pack_with_onednn(PostOp then) {
  try {
    const at::Tensor packed = prepacked(weight_);
    packed_linear(at::zeros({1, weight_.size(1)}, weight_.options().requires_grad(false)), packed, optional_bias(),
                  then);
    packed_ = packed;
    then_ = then;
  } catch (const c10::Error&) {
    unpack();  // this build or processor has no such kernel: the plain layer gives the same values
  }
}

void Linear::unpack() {
  if (weight_.defined()) plain_weight();
  own_.reset();
  packed_ = at::Tensor();
  then_ = PostOp::kNone;
}

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
