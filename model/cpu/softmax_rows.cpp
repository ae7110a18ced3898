#include "model/cpu/softmax_rows.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <limits>

#include "base/util.h"
#include "model/cpu/instructions.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kLanes = 16;

DRAFTSMITH_INLINE float largest_of(const float* x, int64_t count) {
  float partial[kLanes];
  for (float& value : partial) value = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) partial[j] = x[i + j] > partial[j] ? x[i + j] : partial[j];
  }
  float largest = -std::numeric_limits<float>::infinity();
  for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  for (const float value : partial) largest = value > largest ? value : largest;
  return largest;
}

DRAFTSMITH_VECTOR_CODE
void softmax_rows_portable(float* scores, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    float* x = scores + row * columns;
    const float largest = largest_of(x, columns);
    for (int64_t i = 0; i < columns; ++i) x[i] = exponential(x[i] - largest);
    const float inverse = 1 / sum_in_lanes<float>(columns, [&](int64_t i) { return x[i]; });
    for (int64_t i = 0; i < columns; ++i) x[i] *= inverse;
  }
}

#ifdef __x86_64__
#define DRAFTSMITH_AVX512 [[gnu::target("avx512f,prefer-vector-width=512")]]

using Floats = float __attribute__((vector_size(64)));
using Integers = int32_t __attribute__((vector_size(64)));

// exponential() of each lane.
DRAFTSMITH_AVX512 inline Floats exponentials(Floats x) {
  const Floats clamped = x < -87.0F ? Floats{} - 87.0F : x;  // NaN stays
  constexpr float kWhole = 12582912.0F;
  const Floats n = ((x > -87.0F ? x : Floats{} - 87.0F) * 1.44269504088896341F + kWhole) - kWhole;
  const Floats r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  for (const float coefficient : {8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    p = p * r + coefficient;
  }
  p = p * r * r + r + 1.0F;
  const auto power = reinterpret_cast<Floats>((__builtin_convertvector(n, Integers) + 127) << 23);
  return x < -87.0F ? Floats{} : p * power;
}

// Folds a vector in halves: join(a, b) of lanes until one is left. (The compiler's own reductions give false warnings.)
template <class Join>
DRAFTSMITH_AVX512 inline float folded(Floats x, const Join& join) {
  x = join(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  x = join(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  x = join(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  return join(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14))[0];
}

struct Larger {
  DRAFTSMITH_AVX512 Floats operator()(Floats a, Floats b) const { return b > a ? b : a; }
};
struct Sum {
  DRAFTSMITH_AVX512 Floats operator()(Floats a, Floats b) const { return a + b; }
};

DRAFTSMITH_AVX512 inline Floats vector_at(const float* x, int64_t i) {
  return _mm512_loadu_ps(x + i * kLanes);
}

DRAFTSMITH_AVX512 inline void softmax_row_avx512(float* x, int64_t columns) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t whole = columns / kLanes * kLanes;
  const auto mask = static_cast<__mmask16>((1 << (columns - whole)) - 1);
  Floats last = _mm512_mask_loadu_ps(Floats{} + kNone, mask, x + whole);
  Floats most = last;
  for (int64_t i = 0; i < whole; i += kLanes) most = Larger()(most, _mm512_loadu_ps(x + i));
  const float largest = folded(most, Larger());
  last = exponentials(last - largest);
  Floats sums = last;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats powers = exponentials(_mm512_loadu_ps(x + i) - largest);
    sums += powers;
    _mm512_storeu_ps(x + i, powers);
  }
  const float inverse = 1 / folded(sums, Sum());
  for (int64_t i = 0; i < whole; i += kLanes) _mm512_storeu_ps(x + i, _mm512_loadu_ps(x + i) * inverse);
  _mm512_mask_storeu_ps(x + whole, mask, last * inverse);
}

// The same by vectors, the last of a row with a mask: rows of sentences are short, and loops over their last few
// numbers take longer than the vectors. A vector that begins where one with a mask was just written has to wait, so
// neighbours are not done one after the other.
DRAFTSMITH_AVX512 void softmax_rows_avx512(float* scores, int64_t rows, int64_t columns) {
  const int64_t apart = 1 + (kLanes + columns - 1) / std::max<int64_t>(1, columns);
  for (int64_t first = 0; first < apart; ++first) {
    for (int64_t row = first; row < rows; row += apart) softmax_row_avx512(scores + row * columns, columns);
  }
}
#endif

}  // namespace

void softmax_rows(float* scores, int64_t rows, int64_t columns) {
#ifdef __x86_64__
  static const bool has_masks = cpu_instructions() >= Instructions::kAvx512;
  if (has_masks) return softmax_rows_avx512(scores, rows, columns);
#endif
  softmax_rows_portable(scores, rows, columns);
}

DRAFTSMITH_VECTOR_CODE
void softmax_rows_backward(const float* probabilities, float* gradients, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* p = probabilities + row * columns;
    float* g = gradients + row * columns;
    const float sum = sum_in_lanes<float>(columns, [&](int64_t i) { return p[i] * g[i]; });
    for (int64_t i = 0; i < columns; ++i) g[i] = p[i] * (g[i] - sum);
  }
}

DRAFTSMITH_VECTOR_CODE
void widen_rows(const uint16_t* from, int64_t stride, float* to, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* in = from + row * stride;
    float* out = to + row * columns;
    for (int64_t i = 0; i < columns; ++i) out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
  }
}

DRAFTSMITH_VECTOR_CODE
void narrow_rows(const float* from, uint16_t* to, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = from + row * columns;
    uint16_t* out = to + row * stride;
    for (int64_t i = 0; i < columns; ++i) {
      const auto bits = std::bit_cast<uint32_t>(in[i]);
      const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      out[i] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
    }
  }
}

}  // namespace draftsmith::model
