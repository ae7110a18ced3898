#include "model/layers/linear.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/layers/mixed_products.h"

namespace draftsmith::model {

namespace {

// Columns of a thread's share, at least: four lines of a cache.
constexpr int64_t kColumns = 64;

// Adds rows [N,D] to those of `sums` [V,D] that ids [N] name. Each sum is taken in the order of the ids, whatever the
// number of threads.
void add_rows(const at::Tensor& ids, const at::Tensor& rows, at::Tensor& sums) {
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* from = rows.const_data_ptr<float>();
  auto* to = sums.mutable_data_ptr<float>();
  const int64_t width = sums.size(1);
  at::parallel_for(0, width, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < ids.numel(); ++n) {
      const float* row = from + n * width;
      float* sum = to + id[n] * width;
      for (int64_t i = begin; i < end; ++i) sum[i] += row[i];
    }
  });
}

class Embedded : public torch::autograd::Function<Embedded> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->saved_data["table"] = table;
    context->saved_data["ids"] = ids;
    return at::embedding(table, ids);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor table = context->saved_data["table"].toTensor();
    at::Tensor& sums = table.mutable_grad();
    if (!sums.defined()) sums = at::zeros(table.sizes(), table.options().requires_grad(false));
    add_rows(context->saved_data["ids"].toTensor().contiguous(), gradients[0].to(at::kFloat).contiguous(), sums);
    return {at::Tensor(), at::Tensor()};
  }
};

bool by_rows(const at::Tensor& table) {
  const bool learns = at::GradMode::is_enabled() && table.requires_grad() && table.is_leaf();
  if (!learns || !table.is_cpu() || table.scalar_type() != at::kFloat) return false;
  const at::Tensor& sums = table.grad();
  return !sums.defined() || (sums.is_contiguous() && sums.scalar_type() == at::kFloat && !sums.requires_grad());
}

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

at::Tensor embedded(const at::Tensor& table, const at::Tensor& ids) {
  return by_rows(table) ? Embedded::apply(table, ids) : at::embedding(table, ids);
}

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
  return linear_rows(input, joined, {weight_, bias_}, then_, {}, {up.weight_, up.bias_});
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

void Linear::pack(WeightArena& arena, PostOp then, at::TensorList parts) {
  if (!weight_.defined()) return;
  const at::NoGradGuard no_grad;
  const bool only_packed = arena.only_packed().has_value();
  const at::ScalarType type = arena.only_packed().value_or(weight_.scalar_type());
  // Products of bf16 are not those of LibTorch: only who loads a model for decoding wants them.
  if (parts.empty()) parts = weight_;
  own_ = only_packed || type == at::kFloat ? packed_weights(parts, bias_, type, arena) : nullptr;
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

at::Tensor sublayer_sum(const Residual& form, const NormLayer& norm, const at::Tensor& residual, const Linear& last,
                        const at::Tensor& inner, Dropout& dropout) {
  const bool norms = norms_output(form.place);
  at::Tensor sum;
  if (!dropout.active() && !norms && form.scale == 1.0) {
    sum = last.add_to(residual, inner);
  } else {
    at::Tensor added = last(inner);
    added = dropout(norms ? norm(added) : added);
    sum = residual + (form.scale == 1.0 ? added : added * form.scale);
  }
  return form.place == NormPlace::kAfterSum ? norm(sum) : sum;
}

at::Tensor FeedForward::activated(const Linear& linear, const at::Tensor& x) const {
  if (linear.fuses(x)) return linear(x);
  return activation_ == Activation::kRelu ? linear_relu(x, linear) : applied(activation_, linear(x));
}

at::Tensor FeedForward::inner_of(const at::Tensor& x) const {
  const bool gated = gate_.weight().defined();
  if (residual_.norms_input() && (gated ? gate_ : up_).finishes(x)) {
    return gated ? gate_.gated(norm_, up_, x) : up_.after(norm_, x);
  }
  const at::Tensor normed = residual_.norms_input() ? norm_(x) : x;
  if (!gated) return activated(up_, normed);
  if (gate_.fuses(normed)) return gate_(normed) * up_(normed);
  const std::vector<at::Tensor> parts = joint_linear(normed, {&gate_, &up_});
  return applied(activation_, parts[0]) * parts[1];
}

at::Tensor FeedForward::add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout) const {
  const at::Tensor inner = inner_of(x);
  return sublayer_sum(residual_, output_norm_, residual, down_, inner_dropout_ ? dropout(inner) : inner, dropout);
}

std::optional<FeedForwardWeightsView> FeedForward::packed_view() const {
  const bool gated = gate_.weight().defined();
  FeedForwardWeightsView view{.norm = norm_.row_norm(),
                              .output_norm = output_norm_.row_norm(),
                              .gate = gate_.own_weights(),
                              .up = up_.own_weights(),
                              .down = down_.own_weights(),
                              .activation = activation_};
  const bool whole = view.norm.weight != nullptr && view.up != nullptr && view.down != nullptr;
  if (!whole || gated != (view.gate != nullptr)) return std::nullopt;
  return view;
}

void FeedForward::pack(WeightArena& arena) {
  const bool gated = gate_.weight().defined();
  gate_.pack(arena, activation_);
  up_.pack(arena, gated ? PostOp::kNone : activation_);
  down_.pack(arena);
}

}  // namespace draftsmith::model
