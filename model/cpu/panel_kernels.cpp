#include "model/cpu/panel_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/util.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache's line

// Asks for a line of weights. Where computing would wait for it, the second cache asks for a later one, too: the first
// cannot hold as many as memory has underway.
template <bool kLater>
inline void ask_for_line(const void* weights) {
  constexpr int64_t kBytesLater = int64_t{12} << 10;
  __builtin_prefetch(weights);
  if constexpr (kLater) __builtin_prefetch(static_cast<const char*>(weights) + kBytesLater, 0, 2);
}

// Vectors of a row's sums that are in registers at once: all of a panel's where the registers of one row or of AVX-512
// suffice.
constexpr int float_vectors(int64_t lanes, int rows, bool widened) {
  if (lanes == 16) return 4;
  return rows == 1 ? 8 : rows <= (widened ? 2 : 3) ? 4 : 2;
}
constexpr int int8_vectors(int64_t lanes, int rows) {
  return lanes == 16 || rows == 1 ? 4 : 2;
}

#define DRAFTSMITH_TARGET
namespace portable {
constexpr int64_t kLanes = 4;
constexpr int kWordParts = 1;
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

constexpr auto part_of = [](Ints weights, int /*part*/) { return weights; };

inline Ints dot(Ints sum, Ints weights, int32_t four) {
  for (int i = 0; i < 4; ++i) sum += (weights >> (8 * i) & 255) * static_cast<int8_t>(four >> (8 * i));
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
constexpr int kWordParts = 2;
using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));

// Returns the weights of the even inputs, or of the odd ones, in words. The empty instructions here and below keep a
// vector of weights and a product in registers: otherwise all products come first, by way of the stack.
DRAFTSMITH_TARGET inline __m256i part_of(Ints weights, int part) {
  const auto bytes = reinterpret_cast<__m256i>(weights);
  __m256i words = part == 0 ? _mm256_and_si256(bytes, _mm256_set1_epi16(255)) : _mm256_srli_epi16(bytes, 8);
  asm("" : "+x"(words));
  return words;
}

DRAFTSMITH_TARGET inline Ints dot(Ints sum, __m256i weights, int32_t two) {
  sum += reinterpret_cast<Ints>(_mm256_madd_epi16(weights, _mm256_set1_epi32(two)));
  asm("" : "+x"(sum));
  return sum;
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
constexpr int kWordParts = 1;
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

DRAFTSMITH_TARGET inline Ints part_of(Ints weights, int /*part*/) {
  return weights;
}

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

constexpr int64_t kTileInputs = 64;
constexpr int64_t kTileOutputs = 16;
constexpr int64_t kStepBytes = kPanel * 4;     // weights of four inputs
constexpr int kParts = kPanel / kTileOutputs;  // tiles of a panel's outputs

// Sizes of the tiles, as the processor reads them.
struct alignas(64) TileSizes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};

using Sums = int32_t[kParts][Int8Tiles::kRows][kTileOutputs];

// Compilers know nothing about tiles, so each instruction says that it reads and writes memory.
#define DRAFTSMITH_TILE_LOAD(tile, from, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(static_cast<int64_t>(stride)) : "memory")
#define DRAFTSMITH_TILE_STORE(to, tile) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(kLine) : "memory")
#define DRAFTSMITH_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::: "memory")
// Tile 4 has inputs, of bytes with signs, and tiles 5 and 6 have weights, without.
#define DRAFTSMITH_TILE_PRODUCT(sum, weights) asm volatile("tdpbsud %%tmm" #weights ", %%tmm4, %%tmm" #sum ::: "memory")

inline void ask_for(const uint8_t* weights) {
  for (int64_t byte = 0; byte < kTileInputs * kPanel; byte += kLine) __builtin_prefetch(weights + byte);
}

// Adds the products of 64 inputs to tiles 0 to 3.
inline void add_inputs(const int8_t* x, int64_t width, const uint8_t* weights) {
  DRAFTSMITH_TILE_LOAD(4, x, width);
  DRAFTSMITH_TILE_LOAD(5, weights, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(0, 5);
  DRAFTSMITH_TILE_LOAD(6, weights + kLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(1, 6);
  DRAFTSMITH_TILE_LOAD(5, weights + 2 * kLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(2, 5);
  DRAFTSMITH_TILE_LOAD(6, weights + 3 * kLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(3, 6);
}

inline void sum_group(const int8_t* x, int64_t width, const uint8_t* weights, Sums& sums) {
  DRAFTSMITH_TILE_ZERO(0);
  DRAFTSMITH_TILE_ZERO(1);
  DRAFTSMITH_TILE_ZERO(2);
  DRAFTSMITH_TILE_ZERO(3);
  for (int64_t i = 0; i < kInt8Group; i += kTileInputs) {
    ask_for(weights + (kInt8Group + i) * kPanel);
    add_inputs(x + i, width, weights + i * kPanel);
  }
  DRAFTSMITH_TILE_STORE(sums[0], 0);
  DRAFTSMITH_TILE_STORE(sums[1], 1);
  DRAFTSMITH_TILE_STORE(sums[2], 2);
  DRAFTSMITH_TILE_STORE(sums[3], 3);
}

[[gnu::target("avx512f")]] void add_group(int64_t rows, const Int8Task& task, int64_t group, const Sums& sums) {
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t offset = task.offsets[row * task.groups + group];
    const __m512 scale = _mm512_set1_ps(task.scales[row * task.groups + group]);
    for (int part = 0; part < kParts; ++part) {
      vnni::Ints sum;
      vnni::Floats total;
      float* to = task.sums[row] + part * kTileOutputs;
      std::memcpy(&sum, sums[part][row], sizeof(sum));
      std::memcpy(&total, to, sizeof(total));
      total = _mm512_fmadd_ps(__builtin_convertvector(sum + offset, vnni::Floats), scale, total);
      std::memcpy(to, &total, sizeof(total));
    }
  }
}

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

Int8Kernels int8_kernels([[maybe_unused]] Instructions instructions) {
#ifdef __x86_64__
  if (instructions >= Instructions::kAvx512 && has_byte_products()) return vnni::int8_table(AllRows{});
  if (instructions != Instructions::kPortable) return avx2::int8_table(AllRows{});
#endif
  return portable::int8_table(AllRows{});
}

#ifdef __x86_64__

Int8Tiles::~Int8Tiles() {
  if (rows_ > 0) asm volatile("tilerelease" ::: "memory");
}

void Int8Tiles::fit(int64_t rows) {
  if (rows == rows_) return;
  TileSizes sizes;
  for (int tile = 0; tile < 7; ++tile) {
    sizes.bytes[tile] = kLine;
    sizes.rows[tile] = static_cast<uint8_t>(tile < 5 ? rows : Int8Tiles::kRows);
  }
  asm volatile("ldtilecfg %0" ::"m"(sizes) : "memory");
  rows_ = rows;
}

void Int8Tiles::multiply(int64_t rows, const Int8Task& task) {
  fit(rows);
  alignas(64) Sums sums;
  for (int64_t group = 0; group < task.steps * kInt8Step / kInt8Group; ++group) {
    const int64_t input = group * kInt8Group;
    sum_group(task.x + input, task.width, task.weights + input * kPanel, sums);
    add_group(rows, task, group, sums);
  }
}

#else

Int8Tiles::~Int8Tiles() = default;

void Int8Tiles::fit(int64_t /*rows*/) {}

void Int8Tiles::multiply(int64_t /*rows*/, const Int8Task& /*task*/) {
  throw std::logic_error("this processor has no tiles");
}

#endif

namespace {

// Finishes the outputs of one row. Each output reads its own residual alone, which may lie at the same place.
template <bool kScaled, bool kAdded, bool kRelu>
DRAFTSMITH_INLINE void finish_row(const float* sums, const PanelOutputs& to, const float* bias, int64_t row) {
  const float* scales = to.scales;
  const float* residual = to.residual + (kAdded ? row * to.stride : 0);
  float* out = to.out + row * to.stride;
#pragma GCC ivdep
  for (int64_t o = 0; o < to.valid; ++o) {
    float y = kScaled ? std::fma(sums[o], scales[o], bias[o]) : sums[o];
    if (kAdded) y += residual[o];
    out[o] = kRelu && y < 0 ? 0.0F : y;  // keeps NaN
  }
}

template <bool kScaled>
DRAFTSMITH_INLINE void finish_rows(int64_t rows, const float (*sums)[kPanel], const PanelOutputs& to,
                                   const float* bias) {
  for (int64_t row = 0; row < rows; ++row) {
    if (to.residual != nullptr) {
      to.relu ? finish_row<kScaled, true, true>(sums[row], to, bias, row)
              : finish_row<kScaled, true, false>(sums[row], to, bias, row);
    } else {
      to.relu ? finish_row<kScaled, false, true>(sums[row], to, bias, row)
              : finish_row<kScaled, false, false>(sums[row], to, bias, row);
    }
  }
}

}  // namespace

DRAFTSMITH_VECTOR_CODE void finish_panel(int64_t rows, const float (*sums)[kPanel], const PanelOutputs& to) {
  static constexpr float kZeros[kPanel] = {};
  if (to.scales == nullptr) return finish_rows<false>(rows, sums, to, nullptr);
  finish_rows<true>(rows, sums, to, to.bias == nullptr ? kZeros : to.bias);
}

}  // namespace draftsmith::model
