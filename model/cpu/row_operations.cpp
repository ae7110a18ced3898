#include "model/cpu/row_operations.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "base/util.h"
#include "model/cpu/instructions.h"

namespace draftsmith::model {
namespace {

DRAFTSMITH_VECTOR_CODE void normalize_row(const RowNorm& norm, const float* x, int64_t width, float* y) {
  const auto count = static_cast<float>(width);
  const float mean = norm.centered ? sum_in_lanes(width, [x](int64_t i) { return x[i]; }) / count : 0.0F;
  const float square = sum_in_lanes(width, [x, mean](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
  const float factor = 1.0F / std::sqrt(square + static_cast<float>(norm.epsilon));
  if (norm.plus_one) {
    for (int64_t i = 0; i < width; ++i) y[i] = x[i] * factor * (1.0F + norm.weight[i]);
  } else if (norm.bias == nullptr) {
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

DRAFTSMITH_INLINE float gelu_tanh(float x) {
  constexpr auto kFactor = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  return 0.5F * x * (1.0F + tanh_of(kFactor * (x + 0.044715F * x * x * x)));
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), without the digits that 1 + erf loses. Phi(-a) = exp(-a^2/2) W(a) with a
// rational W, fitted to 3e-8 of Phi. All numbers beyond 14 have an exact limit, because exponential() is 0 there.
DRAFTSMITH_INLINE float gelu(float x) {
  const float a = std::min(std::abs(x), 14.0F);  // NaN stays
  const float p = ((0.013797988F * a + 0.105609894F) * a + 0.33752275F) * a + 0.5F;
  const float q = (((0.034599025F * a + 0.26430082F) * a + 0.8864673F) * a + 1.4729282F) * a + 1.0F;
  return (x < 0 ? 0.0F : x) - a * exponential(-0.5F * a * a) * p / q;
}

}  // namespace

void normalize_rows(const RowNorm& norm, const float* x, int64_t rows, int64_t width, float* y) {
  for (int64_t row = 0; row < rows; ++row) normalize_row(norm, x + row * width, width, y + row * width);
}

DRAFTSMITH_VECTOR_CODE void activate(PostOp then, float* x, int64_t count) {
  switch (then) {
    case PostOp::kNone:
      break;
    case PostOp::kRelu:
      for (int64_t i = 0; i < count; ++i) x[i] = x[i] < 0 ? 0.0F : x[i];
      break;
    case PostOp::kGelu:
      for (int64_t i = 0; i < count; ++i) x[i] = gelu(x[i]);
      break;
    case PostOp::kGeluTanh:
      for (int64_t i = 0; i < count; ++i) x[i] = gelu_tanh(x[i]);
      break;
    case PostOp::kSilu:
      for (int64_t i = 0; i < count; ++i) x[i] = silu(x[i]);
      break;
  }
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
  T* kept = inverse.mutable_data_ptr<T>();
  const int64_t rows = x.numel() / width;
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
      kept[row] = factor;
    }
  };
  // Rows that one thread takes at least: below that a second thread costs more than it saves.
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)), task);
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

RmsNormed rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor in = x.contiguous();
  const RmsNormed normed{at::empty_like(in), at::empty({in.numel() / in.size(-1)}, in.options())};
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "rms_norm",
                             [&] { rms_forward<scalar_t>(in, weight, epsilon, normed.y, normed.inverse); });
  return normed;
}

RmsNormGradients rms_norm_backward_on_cpu(const at::Tensor& given, const at::Tensor& input, const at::Tensor& weight,
                                          const at::Tensor& inverse) {
  const at::Tensor gradient = given.contiguous(), x = input.contiguous();
  const at::Tensor dx = at::empty_like(x);
  // A fixed number of partial sums, so that the result doesn't depend on the thread count.
  const at::Tensor partial_dw = at::zeros({16, x.size(-1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_backward",
                             [&] { rms_backward<scalar_t>(x, weight, inverse, gradient, dx, partial_dw); });
  return {dx, partial_dw.sum(0)};
}

namespace {

void softmax_rows_portable(float* scores, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    float* x = scores + row * columns;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < columns; ++i) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < columns; ++i) x[i] = exponential(x[i] - largest);
    const float inverse = 1 / sum_in_lanes(columns, [&](int64_t i) { return x[i]; });
    for (int64_t i = 0; i < columns; ++i) x[i] *= inverse;
  }
}

#ifdef __x86_64__
#define DRAFTSMITH_ROWS_AVX2 [[gnu::target("avx2,fma")]]

using Floats = float __attribute__((vector_size(32)));
using Integers = int32_t __attribute__((vector_size(32)));
using Bits = uint32_t __attribute__((vector_size(32)));
constexpr int64_t kVector = 8;

// Folds a vector in halves: join(a, b) of lanes until one is left.
template <class Join>
DRAFTSMITH_ROWS_AVX2 inline float folded(Floats x, const Join& join) {
  x = join(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  x = join(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5));
  return join(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6))[0];
}

struct Larger {
  DRAFTSMITH_ROWS_AVX2 Floats operator()(Floats a, Floats b) const { return b > a ? b : a; }
};
struct Sum {
  DRAFTSMITH_ROWS_AVX2 Floats operator()(Floats a, Floats b) const { return a + b; }
};

// `rest`: the lanes of the vector behind the whole ones that are the row's.
DRAFTSMITH_ROWS_AVX2 inline void softmax_row_avx2(float* x, int64_t whole, Integers rest) {
  const auto mask = reinterpret_cast<__m256i>(rest);
  Floats last = rest ? Floats(_mm256_maskload_ps(x + whole, mask)) : -std::numeric_limits<float>::infinity();
  Floats most = last;
  for (int64_t i = 0; i < whole; i += kVector) most = Larger()(most, _mm256_loadu_ps(x + i));
  const float largest = folded(most, Larger());
  last -= largest;
  exponentiate<Floats, Bits>(last);
  Floats sums = last;
  for (int64_t i = 0; i < whole; i += kVector) {
    Floats powers = _mm256_loadu_ps(x + i) - largest;
    exponentiate<Floats, Bits>(powers);
    sums += powers;
    _mm256_storeu_ps(x + i, powers);
  }
  const float inverse = 1 / folded(sums, Sum());
  for (int64_t i = 0; i < whole; i += kVector) _mm256_storeu_ps(x + i, _mm256_loadu_ps(x + i) * inverse);
  _mm256_maskstore_ps(x + whole, mask, last * inverse);
}

// The same by vectors, the last of a row with a mask: rows of sentences are short, and loops over their last few
// numbers take longer than the vectors. A vector that begins where one with a mask was just written has to wait, so
// neighbours are not done one after the other.
DRAFTSMITH_ROWS_AVX2 void softmax_rows_avx2(float* scores, int64_t rows, int64_t columns) {
  const int64_t whole = columns / kVector * kVector;
  const Integers rest = Integers{0, 1, 2, 3, 4, 5, 6, 7} < static_cast<int32_t>(columns - whole);
  const int64_t apart = 1 + (kVector + columns - 1) / std::max<int64_t>(1, columns);
  for (int64_t first = 0; first < apart; ++first) {
    for (int64_t row = first; row < rows; row += apart) softmax_row_avx2(scores + row * columns, whole, rest);
  }
}
#endif

}  // namespace

void softmax_rows(float* scores, int64_t rows, int64_t columns) {
#ifdef __x86_64__
  static const bool has_masks = cpu_instructions() >= Instructions::kAvx2;
  if (has_masks) return softmax_rows_avx2(scores, rows, columns);
#endif
  softmax_rows_portable(scores, rows, columns);
}

DRAFTSMITH_VECTOR_CODE
void softmax_rows_backward(const float* probabilities, float* gradients, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* p = probabilities + row * columns;
    float* g = gradients + row * columns;
    const float sum = sum_in_lanes(columns, [&](int64_t i) { return p[i] * g[i]; });
    for (int64_t i = 0; i < columns; ++i) g[i] = p[i] * (g[i] - sum);
  }
}

DRAFTSMITH_VECTOR_CODE void keep_where(const uint16_t* output, uint16_t* words, int64_t count) {
  for (int64_t i = 0; i < count; ++i) words[i] = output[i] == 0 ? 0 : words[i];
}

DRAFTSMITH_VECTOR_CODE
void widen_rows(const uint16_t* from, int64_t stride, float* to, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* in = from + row * stride;
    float* out = to + row * columns;
    for (int64_t i = 0; i < columns; ++i) out[i] = widened_bf16(in[i]);
  }
}

DRAFTSMITH_VECTOR_CODE
void narrow_rows(const float* from, uint16_t* to, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = from + row * columns;
    uint16_t* out = to + row * stride;
    for (int64_t i = 0; i < columns; ++i) out[i] = narrowed_bf16(in[i]);
  }
}

}  // namespace draftsmith::model
