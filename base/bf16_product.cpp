#include "base/bf16_product.h"

#include <stdexcept>

#include "base/bf16_pair_product.h"

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

bool has_instructions() {
  return __builtin_cpu_supports("avx512bf16") != 0;
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

}  // namespace

bool has_bf16_tiles() {
  constexpr unsigned kTilesOfBf16 = 1U << 22;  // of leaf 7 in edx
  unsigned a = 0, b = 0, c = 0, d = 0;
  static const bool has = cblas_gemm_bf16bf16f32 != nullptr && has_instructions() &&
                          __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTilesOfBf16) != 0;
  return has;
}

bool has_bf16_product() {
  return has_bf16_tiles() || has_bf16_pairs();
}

void multiply_bf16(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out) {
  if (product.m == 0 || product.n == 0) return;
  if (has_bf16_tiles()) {
    multiply_by_mkl(product, a, b, out);
  } else {
    multiply_bf16_pairs(product, a, b, out);
  }
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
