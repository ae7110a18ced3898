#include "infer/sampling/sampling.h"

#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/device_tensors.h"
#include "infer/sampling/draws_gpu.h"
#include "infer/sampling/most_likely_gpu.h"
#include "infer/sampling/row_kernels.h"
#include "infer/sampling/tensor_sampling.h"
#include "model/cpu/team.h"

namespace draftsmith::infer {

namespace {

constexpr int64_t kNumbersPerTask = 1 << 16;  // a second thread costs about as much as this many

bool runs_by_rows(const at::Tensor& logits) {
  return logits.is_cpu() && logits.numel() > 0;
}

// Calls work(row, pointer to its V numbers), which throws nothing, for every row of contiguous values [...,V], fp32 or
// fp64.
template <class T, class Work>
void for_each_row(const at::Tensor& values, const Work& work) {
  const int64_t width = values.size(-1);
  const T* data = values.const_data_ptr<T>();
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(row, data + row * width);
  };
  const int64_t rows = values.numel() / width;
  if (rows * width <= kNumbersPerTask) return task(0, rows);
  model::in_pieces(rows, task);
}

at::IntArrayRef leading_sizes(const at::Tensor& values) {
  return values.sizes().slice(0, static_cast<size_t>(values.dim()) - 1);
}

at::Tensor warp_rows(const at::Tensor& logits, const Warping& warping) {
  const auto scores = logits.contiguous();
  auto out = host_empty(scores.sizes(), scores.scalar_type());
  const int64_t width = scores.size(-1);
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "warp", [&] {
    auto* probabilities = out.mutable_data_ptr<scalar_t>();
    for_each_row<scalar_t>(scores, [&](int64_t row, const scalar_t* values) {
      row_warp(values, width, warping, probabilities + row * width);
    });
  });
  return out;
}

// One number of type fp32 or fp64 a row: value(row, logits of the row, its softmax's sums).
template <class Value>
at::Tensor by_softmax(const at::Tensor& logits, const Value& value) {
  const auto scores = logits.contiguous();
  auto out = host_empty(leading_sizes(scores), scores.scalar_type());
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "softmax sums", [&] {
    auto* results = out.mutable_data_ptr<scalar_t>();
    for_each_row<scalar_t>(scores, [&](int64_t row, const scalar_t* values) {
      const SoftmaxSums sums = row_softmax_sums(values, scores.size(-1));
      results[row] = static_cast<scalar_t>(value(row, values, sums));
    });
  });
  return out;
}

at::Tensor most_likely_on_cpu(const at::Tensor& logits) {
  const auto type = logits.scalar_type();
  if (logits.numel() == 0 || (type != at::kFloat && type != at::kDouble)) return tensor_most_likely(logits);
  const auto scores = logits.contiguous();
  auto out = host_empty(leading_sizes(scores), at::kLong);
  auto* tokens = out.mutable_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(type, "most likely", [&] {
    for_each_row<scalar_t>(
        scores, [&](int64_t row, const scalar_t* values) { tokens[row] = row_argmax(values, scores.size(-1)); });
  });
  return out;
}

at::Tensor most_likely_on_gpu(const at::Tensor& logits) {
  const auto tokens = most_likely_by_kernel(logits);
  return tokens ? *tokens : tensor_most_likely(logits);
}

at::Tensor draw_on_cpu(const at::Tensor& weights, const at::Tensor& uniforms) {
  if (!runs_by_rows(weights)) return tensor_draw(weights, uniforms);
  const auto rows = weights.contiguous();
  const auto chances = uniforms.contiguous();
  auto out = host_empty(uniforms.sizes(), at::kLong);
  auto* tokens = out.mutable_data_ptr<int64_t>();
  const auto* chance = chances.const_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "draw", [&] {
    for_each_row<scalar_t>(
        rows, [&](int64_t row, const scalar_t* values) { tokens[row] = row_draw(values, rows.size(-1), chance[row]); });
  });
  return out;
}

at::Tensor draw_on_gpu(const at::Tensor& weights, const at::Tensor& uniforms) {
  const auto tokens = draw_by_kernel(weights, uniforms);
  return tokens ? *tokens : tensor_draw(weights, uniforms);
}

// One launch each on other devices than the CPU.
TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("most_likely(Tensor logits) -> Tensor");
  library.def("draw(Tensor weights, Tensor uniforms) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("most_likely", &most_likely_on_cpu);
  library.impl("draw", &draw_on_cpu);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("most_likely", &most_likely_on_gpu);
  library.impl("draw", &draw_on_gpu);
}

}  // namespace

at::Tensor warp(const at::Tensor& logits, const Warping& warping) {
  const auto scores = promoted(logits);
  if (warping.greedy()) {
    return at::zeros_like(scores).scatter_(-1, most_likely(scores).clamp_min(0).unsqueeze(-1), 1.0);
  }
  return runs_by_rows(scores) ? warp_rows(scores, warping) : tensor_warp(scores, warping);
}

at::Tensor most_likely(const at::Tensor& logits) {
  if (logits.is_cpu()) return most_likely_on_cpu(logits);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("draftsmith::most_likely", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(logits);
}

at::Tensor confidence(const at::Tensor& logits) {
  const auto scores = promoted(logits);
  if (!runs_by_rows(scores)) return scores.softmax(-1).amax(-1);
  return by_softmax(scores, [](int64_t, const auto*, const SoftmaxSums& sums) { return 1 / sums.total; });
}

at::Tensor token_log_probability(const at::Tensor& logits, const at::Tensor& tokens) {
  const auto scores = promoted(logits);
  if (!runs_by_rows(scores)) return scores.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
  const auto ids = tokens.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  return by_softmax(scores, [id](int64_t row, const auto* values, const SoftmaxSums& sums) {
    return static_cast<double>(values[id[row]]) - sums.highest - std::log(sums.total);
  });
}

at::Tensor draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  if (weights.is_cpu()) return draw_on_cpu(weights, uniforms);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::draw", "").typed<decltype(draw_on_cpu)>();
  return op.call(weights, uniforms);
}

}  // namespace draftsmith::infer
