#include "model/layers/linear_rows.h"

#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "model/layers/linear_rows_gpu.h"
#include "model/layers/rms_norm_operator.h"
#include "model/layers/step_recorder.h"

namespace draftsmith::model {
namespace {

using Maybe = std::optional<at::Tensor>;

LinearWeights weights_of(const at::Tensor& weight, const Maybe& bias, const Maybe& scale) {
  return {weight, bias.value_or(at::Tensor()), scale.value_or(at::Tensor())};
}

Maybe maybe(const at::Tensor& tensor) {
  return tensor.defined() ? Maybe(tensor) : std::nullopt;
}

at::Tensor normed(const at::Tensor& x, const Maybe& norm, double epsilon) {
  return norm ? rms_normed(x, *norm, epsilon).y : x;
}

at::Tensor product(const at::Tensor& x, const LinearWeights& layer) {
  if (!layer.scale.defined()) return at::linear(x, layer.weight, maybe(layer.bias));
  const at::Tensor wide = at::linear(x.to(at::kFloat), layer.weight.to(at::kFloat)) * layer.scale;
  return (layer.bias.defined() ? wide + layer.bias : wide).to(x.scalar_type());
}

at::Tensor rows_by_operators(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& weight,
                             const Maybe& bias, const Maybe& scale, int64_t then, const Maybe& residual) {
  const at::Tensor sums = product(normed(x, norm, epsilon), weights_of(weight, bias, scale));
  const at::Tensor y = applied(static_cast<PostOp>(then), sums);
  return residual ? *residual + y : y;
}

at::Tensor gated_by_operators(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& gate,
                              const Maybe& gate_bias, const Maybe& gate_scale, const at::Tensor& up,
                              const Maybe& up_bias, const Maybe& up_scale, int64_t then) {
  const at::Tensor in = normed(x, norm, epsilon);
  return applied(static_cast<PostOp>(then), product(in, weights_of(gate, gate_bias, gate_scale))) *
         product(in, weights_of(up, up_bias, up_scale));
}

at::Tensor rows_on_gpu(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& weight,
                       const Maybe& bias, const Maybe& scale, int64_t then, const Maybe& residual) {
  const auto y = linear_rows_by_kernel(x, {norm.value_or(at::Tensor()), epsilon}, weights_of(weight, bias, scale), {},
                                       static_cast<PostOp>(then), residual.value_or(at::Tensor()));
  return y ? *y : rows_by_operators(x, norm, epsilon, weight, bias, scale, then, residual);
}

at::Tensor gated_on_gpu(const at::Tensor& x, const Maybe& norm, double epsilon, const at::Tensor& gate,
                        const Maybe& gate_bias, const Maybe& gate_scale, const at::Tensor& up, const Maybe& up_bias,
                        const Maybe& up_scale, int64_t then) {
  const auto y =
      linear_rows_by_kernel(x, {norm.value_or(at::Tensor()), epsilon}, weights_of(gate, gate_bias, gate_scale),
                            weights_of(up, up_bias, up_scale), static_cast<PostOp>(then), {});
  return y ? *y : gated_by_operators(x, norm, epsilon, gate, gate_bias, gate_scale, up, up_bias, up_scale, then);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "linear_rows(Tensor x, Tensor? norm, float epsilon, Tensor weight, Tensor? bias, Tensor? scale, int then, "
      "Tensor? residual) -> Tensor");
  library.def(
      "gated_rows(Tensor x, Tensor? norm, float epsilon, Tensor gate, Tensor? gate_bias, Tensor? gate_scale, "
      "Tensor up, Tensor? up_bias, Tensor? up_scale, int then) -> Tensor");
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
  if (StepRecorder* recorder = StepRecorder::current()) {
    if (const auto y = recorder->linear_rows(x, norm, layer, {}, then, residual)) return *y;
  }
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("draftsmith::linear_rows", "")
                             .typed<decltype(rows_by_operators)>();
  return op.call(x, maybe(norm.weight), norm.epsilon, layer.weight, maybe(layer.bias), maybe(layer.scale),
                 static_cast<int64_t>(then), maybe(residual));
}

at::Tensor gated_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& gate, const LinearWeights& up,
                      PostOp then) {
  if (StepRecorder* recorder = StepRecorder::current()) {
    if (const auto y = recorder->linear_rows(x, norm, gate, up, then, {})) return *y;
  }
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("draftsmith::gated_rows", "")
                             .typed<decltype(gated_by_operators)>();
  return op.call(x, maybe(norm.weight), norm.epsilon, gate.weight, maybe(gate.bias), maybe(gate.scale), up.weight,
                 maybe(up.bias), maybe(up.scale), static_cast<int64_t>(then));
}

}  // namespace draftsmith::model
