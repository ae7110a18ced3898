#include "model/cpu/row_operations.h"

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "base/util.h"

namespace draftsmith::model {
namespace {

DRAFTSMITH_VECTOR_CODE void normalize_row(const RowNorm& norm, const float* x, int64_t width, float* y) {
  const auto count = static_cast<float>(width);
  const float mean = norm.centered ? sum_in_lanes<float>(width, [x](int64_t i) { return x[i]; }) / count : 0.0F;
  const float square =
      sum_in_lanes<float>(width, [x, mean](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
  const float factor = 1.0F / std::sqrt(square + static_cast<float>(norm.epsilon));
  if (norm.bias == nullptr) {
    for (int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * factor * norm.weight[i];
  } else {
    for (int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * factor * norm.weight[i] + norm.bias[i];
  }
}

// exp(-|x|)
DRAFTSMITH_INLINE float decay(float x) {
  return exponential(x < 0 ? x : -x);
}

DRAFTSMITH_INLINE float silu(float x) {
  const float e = decay(x);
  return x * (x < 0 ? e : 1.0F) / (1.0F + e);
}

DRAFTSMITH_INLINE float tanh_of(float x) {
  const float e = decay(2 * x);
  const float size = (1.0F - e) / (1.0F + e);
  return x < 0 ? -size : size;
}

DRAFTSMITH_INLINE float gelu_tanh(float x) {
  constexpr auto kFactor = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  return 0.5F * x * (1.0F + tanh_of(kFactor * (x + 0.044715F * x * x * x)));
}

DRAFTSMITH_VECTOR_CODE void relu_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] < 0 ? 0.0F : x[i];
}

DRAFTSMITH_VECTOR_CODE void silu_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = silu(x[i]);
}

DRAFTSMITH_VECTOR_CODE void gelu_tanh_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = gelu_tanh(x[i]);
}

void gelu_all(float* x, int64_t count) {
  constexpr auto kFactor = static_cast<float>(1 / std::numbers::sqrt2);
  for (int64_t i = 0; i < count; ++i) x[i] = 0.5F * x[i] * (1.0F + std::erf(x[i] * kFactor));
}

}  // namespace

void normalize_rows(const RowNorm& norm, const float* x, int64_t rows, int64_t width, float* y) {
  for (int64_t row = 0; row < rows; ++row) normalize_row(norm, x + row * width, width, y + row * width);
}

void activate(PostOp then, float* x, int64_t count) {
  switch (then) {
    case PostOp::kNone:
      return;
    case PostOp::kRelu:
      return relu_all(x, count);
    case PostOp::kGelu:
      return gelu_all(x, count);
    case PostOp::kGeluTanh:
      return gelu_tanh_all(x, count);
    case PostOp::kSilu:
      return silu_all(x, count);
  }
  throw std::logic_error("unknown post-operation");
}

DRAFTSMITH_VECTOR_CODE void multiply_by(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= y[i];
}

void rotate_heads(float* x, int64_t heads, int64_t width, const float* cosine, const float* sine, int64_t half) {
  for (int64_t head = 0; head < heads; ++head, x += width) {
    for (int64_t i = 0; i < half; ++i) {
      const float first = x[i];
      const float second = x[i + half];
      x[i] = first * cosine[i] - second * sine[i];
      x[i + half] = second * cosine[i] + first * sine[i];
    }
  }
}

}  // namespace draftsmith::model
