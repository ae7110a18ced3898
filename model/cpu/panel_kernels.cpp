#include "model/cpu/panel_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <utility>

#include "base/util.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache's line

// Vectors of a row's sums that are in registers at once: all of a panel's where the registers of one row or of AVX-512
// suffice.
constexpr int tile_vectors(int64_t lanes, int rows) {
  if (lanes == 16) return 4;
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

#define DRAFTSMITH_TARGET
namespace portable {
constexpr int64_t kLanes = 4;
constexpr bool kOffsetSums = false;
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

inline Ints dot(Ints sum, Ints weights, int32_t four) {
  for (int i = 0; i < 4; ++i) {
    sum += ((weights >> (8 * i) & 255) - 128) * static_cast<int8_t>(four >> (8 * i));
  }
  return sum;
}

// Rounds once, as the instructions of the other sets do.
inline Floats add_product(Floats sum, Floats factor, float scale) {
  for (int i = 0; i < kLanes; ++i) sum[i] = std::fma(factor[i], scale, sum[i]);
  return sum;
}
#include "model/cpu/float_tiles.h"
#include "model/cpu/int8_tiles.h"
}  // namespace portable
#undef DRAFTSMITH_TARGET

#ifdef __x86_64__

#define DRAFTSMITH_TARGET __attribute__((target("avx2,fma")))
namespace avx2 {
constexpr int64_t kLanes = 8;
constexpr bool kOffsetSums = false;
using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));

// Adds in 16 bits the products of two bytes, of size 127 at most, which is exact: 2 * 127 * 127 < 2^15.
DRAFTSMITH_TARGET inline Ints dot(Ints sum, Ints weights, int32_t four) {
  const __m256i w = _mm256_xor_si256(reinterpret_cast<__m256i>(weights), _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(_mm256_set1_epi32(four), w));
  return sum + reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

DRAFTSMITH_TARGET inline Floats add_product(Floats sum, Floats factor, float scale) {
  return _mm256_fmadd_ps(factor, _mm256_set1_ps(scale), sum);
}
#include "model/cpu/float_tiles.h"
#include "model/cpu/int8_tiles.h"
}  // namespace avx2
#undef DRAFTSMITH_TARGET

#define DRAFTSMITH_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
namespace avx512 {
constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
#include "model/cpu/float_tiles.h"
}  // namespace avx512
#undef DRAFTSMITH_TARGET

#define DRAFTSMITH_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
namespace vnni {
constexpr int64_t kLanes = 16;
constexpr bool kOffsetSums = true;
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

DRAFTSMITH_TARGET inline Ints dot(Ints sum, Ints weights, int32_t four) {
  return reinterpret_cast<Ints>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(weights), _mm512_set1_epi32(four)));
}

DRAFTSMITH_TARGET inline Floats add_product(Floats sum, Floats factor, float scale) {
  return _mm512_fmadd_ps(factor, _mm512_set1_ps(scale), sum);
}
#include "model/cpu/int8_tiles.h"
}  // namespace vnni
#undef DRAFTSMITH_TARGET

#endif

using AllRows = std::make_integer_sequence<int, kPanelRows>;

}  // namespace

template <class Stored>
PanelKernels<FloatTask<Stored>> float_kernels([[maybe_unused]] Instructions instructions) {
#ifdef __x86_64__
  if (instructions >= Instructions::kAvx512) return avx512::float_table<Stored>(AllRows{});
  if (instructions == Instructions::kAvx2) return avx2::float_table<Stored>(AllRows{});
#endif
  return portable::float_table<Stored>(AllRows{});
}

template PanelKernels<FloatTask<float>> float_kernels(Instructions);
template PanelKernels<FloatTask<uint16_t>> float_kernels(Instructions);

PanelKernels<Int8Task> int8_kernels([[maybe_unused]] Instructions instructions) {
#ifdef __x86_64__
  if (instructions >= Instructions::kAvx512 && has_byte_products()) return vnni::int8_table(AllRows{});
  if (instructions != Instructions::kPortable) return avx2::int8_table(AllRows{});
#endif
  return portable::int8_table(AllRows{});
}

// Each operation is a loop of its own over a copy of the row: the outputs may be the residual, and a loop that might
// overwrite what it reads does not become vector code.
DRAFTSMITH_VECTOR_CODE void finish_panel(int64_t rows, const float (*sums)[kPanel], const PanelOutputs& to) {
  static constexpr float kZeros[kPanel] = {};
  const float* bias = to.bias == nullptr ? kZeros : to.bias;
  for (int64_t row = 0; row < rows; ++row) {
    alignas(64) float y[kPanel];
    for (int64_t o = 0; o < kPanel; ++o) y[o] = sums[row][o];
    if (to.scales != nullptr) {
      for (int64_t o = 0; o < kPanel; ++o) y[o] = std::fma(y[o], to.scales[o], bias[o]);
    }
    if (to.residual != nullptr) {
      const float* residual = to.residual + row * to.stride;
      for (int64_t o = 0; o < to.valid; ++o) y[o] += residual[o];
    }
    if (to.relu) {
      for (int64_t o = 0; o < kPanel; ++o) y[o] = y[o] < 0 ? 0.0F : y[o];  // keeps NaN
    }
    std::memcpy(to.out + row * to.stride, y, static_cast<size_t>(to.valid) * sizeof(float));
  }
}

}  // namespace draftsmith::model
