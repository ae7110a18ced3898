#include "model/cpu/softmax_rows.h"

#include <bit>
#include <limits>

#include "base/vector_math.h"

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

}  // namespace

DRAFTSMITH_VECTOR_CODE
void softmax_rows(float* scores, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    float* x = scores + row * columns;
    const float largest = largest_of(x, columns);
    for (int64_t i = 0; i < columns; ++i) x[i] = exponential(x[i] - largest);
    const float inverse = 1 / sum_in_lanes<float>(columns, [&](int64_t i) { return x[i]; });
    for (int64_t i = 0; i < columns; ++i) x[i] *= inverse;
  }
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
