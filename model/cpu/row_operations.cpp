#include "model/cpu/row_operations.h"

#include <cmath>
#include <numbers>
#include <stdexcept>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

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

template <class T>
void rotate_heads(T* x, int64_t heads, int64_t width, const T* cosine, const T* sine, int64_t half) {
  for (int64_t head = 0; head < heads; ++head, x += width) {
    for (int64_t i = 0; i < half; ++i) {
      const T first = x[i];
      const T second = x[i + half];
      x[i] = first * cosine[i] - second * sine[i];
      x[i + half] = second * cosine[i] + first * sine[i];
    }
  }
}

template void rotate_heads(float*, int64_t, int64_t, const float*, const float*, int64_t);
template void rotate_heads(double*, int64_t, int64_t, const double*, const double*, int64_t);

namespace {

// Rows of D numbers one thread takes at least: below that a second thread costs more than it saves.
int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
}

// Returns the sum of term(0) to term(width - 1): partial sums, which are added in order.
template <class T, class Term>
DRAFTSMITH_INLINE T sum_in_order(int64_t width, const Term& term) {
  T partial[16] = {};
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    for (int64_t j = 0; j < 16; ++j) partial[j] += term(i + j);
  }
  T sum = 0;
  for (const T value : partial) sum += value;
  for (; i < width; ++i) sum += term(i);
  return sum;
}

template <class T>
void rms_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon, const at::Tensor& y,
                 const at::Tensor& inverse) {
  const int64_t width = x.size(-1);
  const T* in = x.const_data_ptr<T>();
  const T* scale = weight.const_data_ptr<T>();
  T* out = y.mutable_data_ptr<T>();
  T* kept = inverse.defined() ? inverse.mutable_data_ptr<T>() : nullptr;
  const int64_t rows = width == 0 ? 0 : x.numel() / width;
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = in + row * width;
      T* to = out + row * width;
      const T squares = sum_in_order<T>(width, [from](int64_t i) { return from[i] * from[i]; });
      const T mean = squares / static_cast<T>(width);
      const T factor = T(1) / std::sqrt(mean + static_cast<T>(epsilon));
      for (int64_t i = 0; i < width; ++i) {
        to[i] = from[i] * factor * scale[i];
      }
      if (kept != nullptr) {
        kept[row] = factor;
      }
    }
  };
  if (rows <= rows_per_task(width)) {
    task(0, rows);
  } else {
    at::parallel_for(0, rows, rows_per_task(width), task);
  }
}

// Writes dx, and each part's share of dw.
template <class T>
void rms_backward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& inverse, const at::Tensor& gradient,
                  const at::Tensor& dx, const at::Tensor& partial_dw) {
  const int64_t width = x.size(-1);
  const int64_t rows = x.numel() / width;
  const int64_t parts = partial_dw.size(0);
  const int64_t per_part = (rows + parts - 1) / parts;
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      T* dw = partial_dw.mutable_data_ptr<T>() + part * width;
      const T* w = weight.const_data_ptr<T>();
      for (int64_t row = part * per_part; row < std::min(rows, (part + 1) * per_part); ++row) {
        const T* xs = x.const_data_ptr<T>() + row * width;
        const T* gs = gradient.const_data_ptr<T>() + row * width;
        T* ds = dx.mutable_data_ptr<T>() + row * width;
        const T r = inverse.const_data_ptr<T>()[row];
        const T dot = sum_in_order<T>(width, [&](int64_t i) { return w[i] * gs[i] * xs[i]; });
        const T shared = dot * r * r * r / static_cast<T>(width);
        for (int64_t i = 0; i < width; ++i) {
          ds[i] = w[i] * gs[i] * r - xs[i] * shared;
          dw[i] += gs[i] * xs[i] * r;
        }
      }
    }
  });
}

}  // namespace

bool rms_norm_on_cpu_takes(const at::Tensor& x, const at::Tensor& weight) {
  return x.device().is_cpu() && x.scalar_type() == weight.scalar_type() && x.numel() > 0 &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

void rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon, const at::Tensor& y,
                     const at::Tensor& inverse) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm",
                             [&] { rms_forward<scalar_t>(x, weight, epsilon, y, inverse); });
}

RmsNormGradients rms_norm_backward_on_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& inverse) {
  const at::Tensor dx = at::empty_like(x);
  // A fixed number of partial sums, so that the result doesn't depend on the thread count.
  const at::Tensor partial_dw = at::zeros({16, x.size(-1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_backward",
                             [&] { rms_backward<scalar_t>(x, weight, inverse, gradient, dx, partial_dw); });
  return {dx, partial_dw.sum(0)};
}

}  // namespace draftsmith::model
