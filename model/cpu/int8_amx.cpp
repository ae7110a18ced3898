#include "model/cpu/int8_amx.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstring>
#include <stdexcept>

namespace draftsmith::model {

#ifdef __x86_64__

namespace {

constexpr int64_t kGroupInputs = 128;
constexpr int64_t kTileInputs = 64;
constexpr int64_t kTileOutputs = 16;
constexpr int64_t kStepBytes = kPanel * 4;     // weights of four inputs
constexpr int64_t kTileLine = 64;              // bytes of a row of a tile, and of a cache's line
constexpr int kParts = kPanel / kTileOutputs;  // tiles of a panel's outputs

// Sizes of the tiles, as the processor reads them.
struct alignas(64) TileSizes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};

using Sums = int32_t[kParts][kTileRows][kTileOutputs];

// Compilers know nothing about tiles, so each instruction says that it reads and writes memory.
#define DRAFTSMITH_TILE_LOAD(tile, from, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(static_cast<int64_t>(stride)) : "memory")
#define DRAFTSMITH_TILE_STORE(to, tile) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(kTileLine) : "memory")
#define DRAFTSMITH_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::: "memory")
// Tile 4 has inputs, of bytes with signs, and tiles 5 and 6 have weights, without.
#define DRAFTSMITH_TILE_PRODUCT(sum, weights) asm volatile("tdpbsud %%tmm" #weights ", %%tmm4, %%tmm" #sum ::: "memory")

inline void ask_for(const uint8_t* weights) {
  for (int64_t byte = 0; byte < kTileInputs * kPanel; byte += kTileLine) __builtin_prefetch(weights + byte);
}

// Adds the products of 64 inputs to tiles 0 to 3.
inline void add_inputs(const int8_t* x, int64_t width, const uint8_t* weights) {
  DRAFTSMITH_TILE_LOAD(4, x, width);
  DRAFTSMITH_TILE_LOAD(5, weights, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(0, 5);
  DRAFTSMITH_TILE_LOAD(6, weights + kTileLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(1, 6);
  DRAFTSMITH_TILE_LOAD(5, weights + 2 * kTileLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(2, 5);
  DRAFTSMITH_TILE_LOAD(6, weights + 3 * kTileLine, kStepBytes);
  DRAFTSMITH_TILE_PRODUCT(3, 6);
}

inline void sum_group(const int8_t* x, int64_t width, const uint8_t* weights, Sums& sums) {
  DRAFTSMITH_TILE_ZERO(0);
  DRAFTSMITH_TILE_ZERO(1);
  DRAFTSMITH_TILE_ZERO(2);
  DRAFTSMITH_TILE_ZERO(3);
  for (int64_t i = 0; i < kGroupInputs; i += kTileInputs) {
    ask_for(weights + (kGroupInputs + i) * kPanel);
    add_inputs(x + i, width, weights + i * kPanel);
  }
  DRAFTSMITH_TILE_STORE(sums[0], 0);
  DRAFTSMITH_TILE_STORE(sums[1], 1);
  DRAFTSMITH_TILE_STORE(sums[2], 2);
  DRAFTSMITH_TILE_STORE(sums[3], 3);
}

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

[[gnu::target("avx512f")]] void add_group(const Int8Block& block, int64_t group, const Sums& sums) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const int32_t offset = block.offsets[row * block.of_row + group];
    const __m512 scale = _mm512_set1_ps(block.scales[row * block.of_row + group]);
    for (int part = 0; part < kParts; ++part) {
      Ints sum;
      Floats total;
      float* to = block.sums[row] + part * kTileOutputs;
      std::memcpy(&sum, sums[part][row], sizeof(sum));
      std::memcpy(&total, to, sizeof(total));
      total = _mm512_fmadd_ps(__builtin_convertvector(sum + offset, Floats), scale, total);
      std::memcpy(to, &total, sizeof(total));
    }
  }
}

bool processor_has_tiles() {
  constexpr unsigned kTile = 1U << 24, kInt8 = 1U << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  return __builtin_cpu_supports("avx512f") != 0;
}

bool system_permits_tiles() {
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux' arch_prctl
  constexpr long kTileData = 18;     // the state's number
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

bool has_tiles() {
  static const bool has = processor_has_tiles() && system_permits_tiles();
  return has;
}

Int8Tiles::~Int8Tiles() {
  if (rows_ > 0) asm volatile("tilerelease" ::: "memory");
}

void Int8Tiles::fit(int64_t rows) {
  if (rows == rows_) return;
  TileSizes sizes;
  for (int tile = 0; tile < 7; ++tile) {
    sizes.bytes[tile] = kTileLine;
    sizes.rows[tile] = static_cast<uint8_t>(tile < 5 ? rows : kTileRows);
  }
  asm volatile("ldtilecfg %0" ::"m"(sizes) : "memory");
  rows_ = rows;
}

void Int8Tiles::multiply(const Int8Block& block) {
  fit(block.rows);
  alignas(64) Sums sums;
  for (int64_t group = 0; group < block.groups; ++group) {
    const int64_t input = group * kGroupInputs;
    sum_group(block.x + input, block.width, block.weights + input * kPanel, sums);
    add_group(block, group, sums);
  }
}

#else

bool has_tiles() {
  return false;
}

Int8Tiles::~Int8Tiles() = default;

void Int8Tiles::fit(int64_t /*rows*/) {}

void Int8Tiles::multiply(const Int8Block& /*block*/) {
  throw std::logic_error("this processor has no tiles");
}

#endif

}  // namespace draftsmith::model
