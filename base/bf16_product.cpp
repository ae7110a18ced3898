#include "base/bf16_product.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

// Layout and transposition are cblas' numbers. Absent where LibTorch was built without MKL.
extern "C" [[gnu::weak]] void cblas_gemm_bf16bf16f32(int layout, int transpose_a, int transpose_b, int m, int n, int k,
                                                     float alpha, const uint16_t* a, int lda, const uint16_t* b,
                                                     int ldb, float beta, float* c, int ldc);
#endif

namespace draftsmith {

#ifdef __x86_64__
namespace {

constexpr int64_t kRowsAtOnce = 32;      // of a product: oneDNN compiles code for each number of rows
constexpr int64_t kColumnsAtOnce = 64;   // of b, whose pairs stay in the second cache
constexpr int64_t kCopiedRows = 128;     // of a
constexpr int64_t kNumbersAtOnce = 640;  // of k, if rows of a are copied
constexpr int64_t kLanes = 16;

// Numbers of k for which code is compiled: few, as k may be a batch's tokens.
int64_t padded(int64_t k) {
  return (k + 31) / 32 * 32;
}

bool has_instructions() {
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

bool processor_has_tiles() {
  constexpr unsigned kTilesOfBf16 = 1U << 22;  // of leaf 7 in edx
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTilesOfBf16) != 0;
}

void multiply_by_mkl(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                     RowsInMemory<float> out) {
  constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
  const auto number = [](int64_t size) { return static_cast<int>(size); };
  const auto form = [](bool transposed) { return transposed ? kTransposed : kAsItIs; };
  cblas_gemm_bf16bf16f32(kRowMajor, form(product.transpose_a), form(product.transpose_b), number(product.m),
                         number(product.n), number(product.k), 1, a.data, number(a.stride), b.data, number(b.stride),
                         product.add ? 1.0F : 0.0F, out.data, number(out.stride));
}

// Sixteen words, each of two numbers that follow each other in k, as oneDNN takes them.
using Words = uint32_t __attribute__((vector_size(64)));

__mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1 << count) - 1);
}

// Part of an operand: `present` numbers of k, with zeros behind them [width], of each of `count` rows or columns.
struct Part {
  const uint16_t* data;
  int64_t stride;
  bool downwards;  // k grows from a row in memory to the next
  int64_t present, width, count;

  // Returns words of a row, from a column on: rows and columns of words as they lie in memory.
  [[gnu::target("avx512f,avx512bw,avx512vl")]] Words read(int64_t row, int64_t column) const {
    if (!downwards) {
      const int64_t left = std::max<int64_t>(0, present - 2 * column);
      const uint32_t mask = left >= 2 * kLanes ? ~uint32_t{0} : (uint32_t{1} << left) - 1;
      return reinterpret_cast<Words>(_mm512_maskz_loadu_epi16(mask, data + row * stride + 2 * column));
    }
    Words words{};
    for (int64_t half = 0; half < 2 && 2 * row + half < present; ++half) {
      const uint16_t* from = data + (2 * row + half) * stride + column;
      const __m256i numbers = _mm256_maskz_loadu_epi16(first_lanes(count - column), from);
      words |= reinterpret_cast<Words>(_mm512_cvtepu16_epi32(numbers)) << 16 * static_cast<int>(half);
    }
    return words;
  }
};

// Transposes 16 rows: interleaves rows i and i + 8, four times.
[[gnu::target("avx512f")]] void transpose(Words (&rows)[kLanes]) {
  for (int round = 0; round < 4; ++round) {
    Words mixed[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const Words a = rows[i], b = rows[i + 8];
      mixed[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      mixed[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::copy_n(mixed, kLanes, rows);
  }
}

// Writes the words of a part: [width/2,count] if `downwards`, else [count,width/2].
[[gnu::target("avx512f,avx512bw,avx512vl")]] void write_words(const Part& from, bool downwards, uint32_t* to) {
  const int64_t height = from.downwards ? from.width / 2 : from.count;
  const int64_t across = from.downwards ? from.count : from.width / 2;
  const bool transposed = from.downwards != downwards;
  const int64_t stride = transposed ? height : across;
  for (int64_t row = 0; row < height; row += kLanes) {
    const int64_t rows = std::min(kLanes, height - row);
    for (int64_t column = 0; column < across; column += kLanes) {
      const int64_t columns = std::min(kLanes, across - column);
      Words block[kLanes] = {};
      for (int64_t i = 0; i < rows; ++i) block[i] = from.read(row + i, column);
      if (transposed) transpose(block);
      uint32_t* corner = transposed ? to + column * stride + row : to + row * stride + column;
      for (int64_t i = 0; i < (transposed ? columns : rows); ++i) {
        _mm512_mask_storeu_epi32(corner + i * stride, first_lanes(transposed ? rows : columns),
                                 reinterpret_cast<__m512i>(block[i]));
      }
    }
  }
}

// Computes rows [begin, end) by one thread, some columns at a time; where rows of a must be copied, some of k.
void multiply_rows(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out, int64_t begin, int64_t end) {
  const bool direct = !product.transpose_a && product.k % 2 == 0;
  const int64_t columns_at_once = direct ? std::min(kColumnsAtOnce, product.n) : product.n;
  const int64_t parts = direct ? 1 : (product.k + kNumbersAtOnce - 1) / kNumbersAtOnce;
  const int64_t k_at_once = direct ? product.k : padded((product.k + parts - 1) / parts);
  std::vector<uint32_t> pairs(static_cast<size_t>(k_at_once / 2 * columns_at_once));
  std::vector<uint32_t> copied(direct ? 0 : static_cast<size_t>(k_at_once / 2 * kCopiedRows));
  for (int64_t left = 0; left < product.n; left += columns_at_once) {
    const int64_t columns = std::min(columns_at_once, product.n - left);
    for (int64_t first = 0; first < product.k; first += k_at_once) {
      const int64_t present = std::min(k_at_once, product.k - first), width = direct ? present : padded(present);
      const uint16_t* of_b = b.data + (product.transpose_b ? left * b.stride + first : first * b.stride + left);
      write_words({of_b, b.stride, !product.transpose_b, present, width, columns}, true, pairs.data());
      for (int64_t row = begin; row < end; row += kRowsAtOnce) {
        const int64_t ahead = (row - begin) % kCopiedRows;
        const uint16_t* of_a = a.data + (product.transpose_a ? first * a.stride + row : row * a.stride + first);
        if (!direct && ahead == 0) {
          write_words({of_a, a.stride, product.transpose_a, present, width, std::min(kCopiedRows, end - row)}, false,
                      copied.data());
        }
        const void* rows = direct ? static_cast<const void*>(of_a) : copied.data() + ahead * width / 2;
        at::native::cpublas::brgemm(
            std::min(kRowsAtOnce, end - row), columns, width, direct ? a.stride : width, columns, out.stride,
            product.add || first > 0, static_cast<const at::BFloat16*>(rows),
            reinterpret_cast<const at::BFloat16*>(pairs.data()), out.data + row * out.stride + left, /*is_vnni=*/true);
      }
    }
  }
}

}  // namespace

bool has_bf16_tiles() {
  static const bool has = cblas_gemm_bf16bf16f32 != nullptr && has_instructions() && processor_has_tiles();
  return has;
}

bool has_bf16_product() {
  // oneDNN would use tiles where there are some, which a process must ask for. LibTorch's could_pack() asks for tiles.
  static const bool has_pairs =
      has_instructions() && !processor_has_tiles() && at::globalContext().userEnabledMkldnn() && at::hasMKLDNN();
  return has_bf16_tiles() || has_pairs;
}

void multiply_bf16(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    for (int64_t i = 0; i < product.m && !product.add; ++i) std::fill_n(out.data + i * out.stride, product.n, 0.0F);
    return;
  }
  if (has_bf16_tiles()) return multiply_by_mkl(product, a, b, out);
  at::parallel_for(0, product.m, kRowsAtOnce,
                   [&](int64_t begin, int64_t end) { multiply_rows(product, a, b, out, begin, end); });
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void round_to_bf16(const float* from, uint16_t* to,
                                                                           int64_t count, bool relu) {
  using Floats = float __attribute__((vector_size(64)));
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto mask = static_cast<__mmask16>(count - i >= kLanes ? 0xffff : (1 << (count - i)) - 1);
    Floats x = _mm512_maskz_loadu_ps(mask, from + i);
    if (relu) x = x < 0 ? Floats{} : x;  // NaN stays
    const auto words = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
    _mm256_mask_storeu_epi16(to + i, mask, words);
  }
}
#else
bool has_bf16_product() {
  return false;
}

bool has_bf16_tiles() {
  return false;
}

void multiply_bf16(const MatrixProduct& /*product*/, RowsInMemory<const uint16_t> /*a*/,
                   RowsInMemory<const uint16_t> /*b*/, RowsInMemory<float> /*out*/) {
  throw std::logic_error("this processor has no products of bf16");
}

void round_to_bf16(const float* /*from*/, uint16_t* /*to*/, int64_t /*count*/, bool /*relu*/) {
  throw std::logic_error("this processor has no products of bf16");
}
#endif

}  // namespace draftsmith
