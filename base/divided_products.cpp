#include "base/divided_products.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <ATen/Parallel.h>

#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define DRAFTSMITH_PRODUCTS 1
#include <dlfcn.h>
#endif

namespace draftsmith {

namespace {

std::atomic<int> users_of_division{0};

}  // namespace

DividedProducts::DividedProducts() {
  users_of_division.fetch_add(1, std::memory_order_relaxed);
}

DividedProducts::~DividedProducts() {
  users_of_division.fetch_sub(1, std::memory_order_relaxed);
}

#ifdef DRAFTSMITH_PRODUCTS
namespace {

using Product = void(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                     const int*, const float*, const int*, const float*, float*, const int*);
using ProductBatch = void(int, const int*, const int*, const int*, const int*, const int*, const float*, const float**,
                          const int*, const float**, const int*, const float*, float**, const int*, int, const int*);

constexpr int64_t kFewest = int64_t{1} << 17;      // multiplications of a product that is cut: some microseconds
constexpr int64_t kRowUnit = 48, kColumnUnit = 8;  // of MKL's kernels for AVX-512

bool divides() {
  return users_of_division.load(std::memory_order_relaxed) > 0 && !at::in_parallel_region() &&
         at::get_num_threads() > 1;
}

// Columns-first matrices, as Fortran has them: C [m,n] = alpha A [m,k] B [k,n] + beta C.
struct ProductPart {
  int64_t begin;
  int64_t size;
};

// Returns part `index` of `parts` of a length, cut at multiples of a unit.
ProductPart part_of(int64_t length, int64_t index, int64_t parts, int64_t unit) {
  const int64_t units = (length + unit - 1) / unit;
  const auto cut = [&](int64_t i) { return std::min(length, units * i / parts * unit); };
  return {cut(index), cut(index + 1) - cut(index)};
}

// Returns how many parts of the rows, m, give the least to read: each part reads its rows of A and its columns of B.
int64_t row_parts(int64_t rows, int64_t columns, int64_t threads) {
  int64_t best = 1;
  const auto read = [&](int64_t parts) { return columns * parts + rows * (threads / parts); };
  for (int64_t parts = 2; parts <= threads; ++parts) {
    if (threads % parts == 0 && read(parts) < read(best)) best = parts;
  }
  return best;
}

bool is_transposed(const char* letter) {
  return *letter != 'n' && *letter != 'N';
}

Product* own_product() {
  static const auto found = reinterpret_cast<Product*>(dlsym(RTLD_NEXT, "sgemm_"));
  return found;
}

ProductBatch* own_batch() {
  static const auto found = reinterpret_cast<ProductBatch*>(dlsym(RTLD_NEXT, "cblas_sgemm_batch"));
  return found;
}

// Calls piece(i) for each of `pieces`, in which MKL uses one thread.
template <class Piece>
void each_piece(int64_t pieces, const Piece& piece) {
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) piece(i);
  });
}

}  // namespace

extern "C" {

void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb, const float* beta,
            float* c, const int* ldc) {
  const int64_t rows = *m, columns = *n;
  if (!divides() || rows * columns * *k < kFewest) {
    return own_product()(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
  const int64_t threads = at::get_num_threads();
  const int64_t parts = row_parts(rows, columns, threads);
  each_piece(threads, [&](int64_t i) {
    const ProductPart row = part_of(rows, i % parts, parts, kRowUnit);
    const ProductPart column = part_of(columns, i / parts, threads / parts, kColumnUnit);
    if (row.size == 0 || column.size == 0) return;
    const int part_m = static_cast<int>(row.size), part_n = static_cast<int>(column.size);
    const float* part_a = a + row.begin * (is_transposed(transpose_a) ? *lda : 1);
    const float* part_b = b + column.begin * (is_transposed(transpose_b) ? 1 : *ldb);
    own_product()(transpose_a, transpose_b, &part_m, &part_n, k, alpha, part_a, lda, part_b, ldb, beta,
                  c + row.begin + column.begin * *ldc, ldc);
  });
}

void cblas_sgemm_batch(int layout, const int* transpose_a, const int* transpose_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float** a, const int* lda, const float** b,
                       const int* ldb, const float* beta, float** c, const int* ldc, int groups, const int* sizes) {
  if (!divides() || groups != 1) {
    return own_batch()(layout, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, sizes);
  }
  const int64_t threads = at::get_num_threads();
  each_piece(threads, [&](int64_t i) {
    const ProductPart part = part_of(*sizes, i, threads, 1);
    if (part.size == 0) return;
    const int size = static_cast<int>(part.size);
    own_batch()(layout, transpose_a, transpose_b, m, n, k, alpha, a + part.begin, lda, b + part.begin, ldb, beta,
                c + part.begin, ldc, 1, &size);
  });
}

}  // extern "C"

bool has_sgemm() {
  return own_product() != nullptr;
}

#else

bool has_sgemm() {
  return false;
}

#endif

}  // namespace draftsmith
