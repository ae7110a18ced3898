#include "model/layers/linear_rows.h"

#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "model/layers/linear_rows_gpu.h"
#include "model/layers/rms_norm_operator.h"

namespace draftsmith::model {
namespace {

using Maybe = std::optional<at::Tensor>;

LinearWeights weights_of(const at::Tensor& weight, const Maybe& bias) {
  return {weight, bias.value_or(at::Tensor())};
}

Maybe maybe(const at::Tensor& tensor) {
  return tensor.defined() ? Maybe(tensor) : std::nullopt;
}

at::Tensor normed(const at::Tensor& x, const Maybe& norm, double epsilon) {
  return norm ? rms_normed(x, *norm, epsilon).y : x;
}

at::Tensor rows_by_operators(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& weight,
                             const Maybe& bias, int64_t then, const Maybe& residual) {
  const at::Tensor y = applied(static_cast<PostOp>(then), at::linear(normed(x, norm, epsilon), weight, bias));
  return residual ? *residual + y : y;
}

at::Tensor gated_by_operators(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& gate,
                              const Maybe& gate_bias, const at::Tensor& up, const Maybe& up_bias, int64_t then) {
  const at::Tensor in = normed(x, norm, epsilon);
  return applied(static_cast<PostOp>(then), at::linear(in, gate, gate_bias)) * at::linear(in, up, up_bias);
}

at::Tensor rows_on_gpu(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& weight,
                       const Maybe& bias, int64_t then, const Maybe& residual) {
  const auto y = linear_rows_by_kernel(x, {norm.value_or(at::Tensor()), epsilon}, weights_of(weight, bias), {},
                                       static_cast<PostOp>(then), residual.value_or(at::Tensor()));
  return y ? *y : rows_by_operators(x, norm, epsilon, weight, bias, then, residual);
}

at::Tensor gated_on_gpu(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& gate,
                        const Maybe& gate_bias, const at::Tensor& up, const Maybe& up_bias, int64_t then) {
  const auto y = linear_rows_by_kernel(x, {norm.value_or(at::Tensor()), epsilon}, weights_of(gate, gate_bias),
                                       weights_of(up, up_bias), static_cast<PostOp>(then), {});
  return y ? *y : gated_by_operators(x, norm, epsilon, gate, gate_bias, up, up_bias, then);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "linear_rows(Tensor x, Tensor? norm, float epsilon, Tensor weight, Tensor? bias, int then, Tensor? residual) -> "
      "Tensor");
  library.def(
      "gated_rows(Tensor x, Tensor? norm, float epsilon, Tensor gate, Tensor? gate_bias, Tensor up, Tensor? up_bias, "
      "int then) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("linear_rows", &rows_by_operators);
  library.impl("gated_rows", &gated_by_operators);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("linear_rows", &rows_on_gpu);
  library.impl("gated_rows", &gated_on_gpu);
}

}  // namespace

at::Tensor linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, PostOp then,
                       const at::Tensor& residual) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("draftsmith::linear_rows", "")
                             .typed<decltype(rows_by_operators)>();
  return op.call(x, maybe(norm.weight), norm.epsilon, layer.weight, maybe(layer.bias), static_cast<int64_t>(then),
                 maybe(residual));
}

at::Tensor gated_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& gate, const LinearWeights& up,
                      PostOp then) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("draftsmith::gated_rows", "")
                             .typed<decltype(gated_by_operators)>();
  return op.call(x, maybe(norm.weight), norm.epsilon, gate.weight, maybe(gate.bias), up.weight, maybe(up.bias),
                 static_cast<int64_t>(then));
}

}  // namespace draftsmith::model
