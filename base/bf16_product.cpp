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

constexpr int64_t kRowsAtOnce = 32;     // of a product: oneDNN compiles code for each number of rows
constexpr int64_t kColumnsAtOnce = 64;  // of b, whose pairs stay in the second cache
constexpr int64_t kCopiedRows = 128;    // of a transposed a: several whole lines side by side

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
                         number(product.n), number(product.k), static_cast<float>(product.factor), a.data,
                         number(a.stride), b.data, number(b.stride), product.add ? 1.0F : 0.0F, out.data,
                         number(out.stride));
}

// Writes columns [begin, end) of b in pairs of rows, [k/2,end - begin] words of two numbers; the last row of an odd k
// has zeros beside it.
void pair_rows(const MatrixProduct& product, RowsInMemory<const uint16_t> b, int64_t begin, int64_t end, uint32_t* to) {
  const int64_t down = product.transpose_b ? 1 : b.stride, right = product.transpose_b ? b.stride : 1;
  for (int64_t row = 0; row < product.k; row += 2) {
    const uint16_t* first = b.data + row * down;
    const int64_t below = row + 1 < product.k ? down : 0;
    const uint32_t kept = below != 0 ? ~uint32_t{0} : 0xffff;
    for (int64_t i = begin; i < end; ++i) *to++ = (first[i * right] | uint32_t{first[i * right + below]} << 16) & kept;
  }
}

// Copies rows of a as the product reads them, each with `width` numbers: k, and a zero if k is odd.
void copy_rows(const MatrixProduct& product, RowsInMemory<const uint16_t> a, int64_t begin, int64_t rows, int64_t width,
               uint16_t* to) {
  const int64_t down = product.transpose_a ? 1 : a.stride, right = product.transpose_a ? a.stride : 1;
  for (int64_t i = 0; i < product.k; ++i) {
    const uint16_t* from = a.data + begin * down + i * right;
    for (int64_t row = 0; row < rows; ++row) to[row * width + i] = from[row * down];
  }
  for (int64_t row = 0; row < rows && width > product.k; ++row) to[row * width + product.k] = 0;
}

// Computes rows [begin, end) by one thread, some columns at a time unless rows of a must be copied.
void multiply_rows(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out, int64_t begin, int64_t end) {
  const int64_t n = product.n, width = (product.k + 1) / 2 * 2;
  const auto factor = static_cast<float>(product.factor);
  const bool direct = !product.transpose_a && width == product.k;
  const int64_t at_once = direct ? std::min(kColumnsAtOnce, n) : n;
  std::vector<uint32_t> pairs(static_cast<size_t>(width / 2 * at_once));
  std::vector<uint16_t> copied(direct ? 0 : static_cast<size_t>(kCopiedRows * width));
  std::vector<float> unscaled(factor == 1 ? 0 : static_cast<size_t>(kRowsAtOnce * at_once));
  for (int64_t left = 0; left < n; left += at_once) {
    const int64_t columns = std::min(at_once, n - left);
    pair_rows(product, b, left, left + columns, pairs.data());
    for (int64_t row = begin; row < end; row += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, end - row), ahead = (row - begin) % kCopiedRows;
      if (!direct && ahead == 0) copy_rows(product, a, row, std::min(kCopiedRows, end - row), width, copied.data());
      const void* of_a = direct ? a.data + row * a.stride : copied.data() + ahead * width;
      float* sums = out.data + row * out.stride + left;
      at::native::cpublas::brgemm(
          rows, columns, width, direct ? a.stride : width, columns, factor == 1 ? out.stride : columns,
          factor == 1 && product.add, static_cast<const at::BFloat16*>(of_a),
          reinterpret_cast<const at::BFloat16*>(pairs.data()), factor == 1 ? sums : unscaled.data(), /*is_vnni=*/true);
      for (int64_t i = 0; factor != 1 && i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          float& sum = sums[i * out.stride + j];
          sum = factor * unscaled[static_cast<size_t>(i * columns + j)] + (product.add ? sum : 0);
        }
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
  if (has_bf16_tiles()) return multiply_by_mkl(product, a, b, out);
  at::parallel_for(0, product.m, kRowsAtOnce,
                   [&](int64_t begin, int64_t end) { multiply_rows(product, a, b, out, begin, end); });
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void round_to_bf16(const float* from, uint16_t* to,
                                                                           int64_t count, bool relu) {
  using Floats = float __attribute__((vector_size(64)));
  constexpr int64_t kLanes = 16;
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
