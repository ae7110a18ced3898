// Attention on the stand-in accelerator, one launch each way, as a GPU's fused kernels; and autocast, by which the
// operators that training calls are converted as on a GPU.
#include <cmath>
#include <tuple>

#include <ATen/Functions.h>
#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "tests/standin/internals.h"

namespace draftsmith::standin {
namespace {

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

int64_t fused_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                        double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::overrideable);
}

// Half types are widened: a kernel's sums are in fp32.
at::Tensor widened(const at::Tensor& host) {
  return !host.defined() || host.scalar_type() == at::kDouble ? host : host.to(at::kFloat);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Returns the weights [B,H,T,S] of queries [B,H,T,K] and keys [B,H,S,K], with a bias that broadcasts to them.
at::Tensor attention_weights(const at::Tensor& query, const at::Tensor& key, const at::Tensor& bias, bool causal,
                             double scale) {
  at::Tensor scores = query.matmul(key.transpose(-2, -1)) * scale;
  if (bias.defined()) scores = scores + bias;
  if (causal) {
    const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, at::kBool).triu_(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::softmax(scores, -1);
}

Forward forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& bias, double /*dropout*/, bool causal, bool /*debug*/,
                std::optional<double> scale) {
  const at::Tensor output = at::empty(query.sizes(), query.options());
  const auto launch = [q = readable_view(query), k = readable_view(key), v = readable_view(value),
                       b = readable_view(bias.value_or(at::Tensor())), out = readable_view(output), causal, scale] {
    out.copy_(attention_weights(widened(q), widened(k), widened(b), causal, scale_of(q, scale)).matmul(widened(v)));
  };
  count_launch("scaled_dot_product_attention");
  record(launch);
  launch();
  const at::Tensor none = at::empty({0}, query.options());
  return {output, none, none, none, query.size(-2), key.size(-2), none, none, none};
}

Gradients backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const at::Tensor& bias, std::array<bool, 4> wanted, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double, bool causal,
                   const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  count_launch("scaled_dot_product_attention_backward");
  const auto wide = [](const at::Tensor& tensor) { return widened(readable_view(tensor)); };
  const at::Tensor q = wide(query), k = wide(key), upstream = wide(gradient);
  const double factor = scale_of(query, scale);
  const at::Tensor weights = attention_weights(q, k, wide(bias), causal, factor);
  const at::Tensor of_weights = upstream.matmul(wide(value).transpose(-2, -1));
  const at::Tensor of_scores = weights * (of_weights - (of_weights * weights).sum(-1, true));
  const auto on_device = [](const at::Tensor& host, const at::Tensor& like) {
    const at::Tensor result = at::empty(like.sizes(), like.options());
    readable_view(result).copy_(host);
    return result;
  };
  return {on_device(of_scores.matmul(k) * factor, query),
          on_device(of_scores.transpose(-2, -1).matmul(q) * factor, key),
          on_device(weights.transpose(-2, -1).matmul(upstream), value),
          wanted[3] ? on_device(of_scores.sum_to_size(bias.sizes()), bias) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", &forward);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &backward);
}

}  // namespace
}  // namespace draftsmith::standin

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &draftsmith::standin::fused_attention)
}  // namespace at::native

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32_set_opt_dtype)
}

}  // namespace
}  // namespace at::autocast
