#include "train/wide_product.h"

#ifdef __x86_64__
// MKL's product of bf16 matrices in fp32, which LibTorch's CPU library holds and has no operator for. Layout and
// transposition are cblas' numbers. Absent where LibTorch was built without MKL.
extern "C" [[gnu::weak]] void cblas_gemm_bf16bf16f32(int layout, int transpose_a, int transpose_b, int m, int n, int k,
                                                     float alpha, const uint16_t* a, int lda, const uint16_t* b,
                                                     int ldb, float beta, float* c, int ldc);
#endif

namespace draftsmith::train {

namespace {

#ifdef __x86_64__
bool has_bf16_product() {
  return cblas_gemm_bf16bf16f32 != nullptr && __builtin_cpu_supports("avx512bf16") != 0;
}

// Sizes of a product out [m,n] = factor a b + (add ? out : 0).
struct Bf16Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;  // a is stored [k,m], b [n,k]
  double factor = 1;
  bool add = false;
};

void bf16_product(const Bf16Product& product, const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
  if (product.m == 0 || product.n == 0) return;
  const at::Tensor a = left.contiguous(), b = right.contiguous();
  const auto words = [](const at::Tensor& tensor) { return static_cast<const uint16_t*>(tensor.const_data_ptr()); };
  const auto number = [](int64_t size) { return static_cast<int>(size); };
  const auto form = [](bool transposed) { return transposed ? kTransposed : kAsItIs; };
  cblas_gemm_bf16bf16f32(kRowMajor, form(product.transpose_a), form(product.transpose_b), number(product.m),
                         number(product.n), number(product.k), static_cast<float>(product.factor), words(a),
                         number(a.size(1)), words(b), number(b.size(1)), product.add ? 1.0F : 0.0F,
                         out.mutable_data_ptr<float>(), number(product.n));
}
#else
bool has_bf16_product() {
  return false;
}

struct Bf16Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  double factor = 1;
  bool add = false;
};

void bf16_product(const Bf16Product& /*product*/, const at::Tensor& /*left*/, const at::Tensor& /*right*/,
                  at::Tensor& /*out*/) {}
#endif

}  // namespace

at::ScalarType wide_type(at::ScalarType matrix) {
  return matrix == at::kDouble ? at::kDouble : at::kFloat;
}

bool multiplies_wide(const at::Tensor& matrix) {
  const at::ScalarType type = matrix.scalar_type();
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  return matrix.is_cuda() || (matrix.is_cpu() && type == at::kBFloat16 && has_bf16_product());
}

void wide_product_into(at::Tensor& out, const at::Tensor& rows, const at::Tensor& matrix, bool add) {
  if (matrix.is_cpu()) {
    return bf16_product({.m = rows.size(0), .n = matrix.size(0), .k = rows.size(1), .transpose_b = true, .add = add},
                        rows, matrix, out);
  }
  if (add) {
    out.add_(at::mm(rows, matrix.t(), out.scalar_type()));
  } else {
    at::mm_out(out, rows, matrix.t(), out.scalar_type());
  }
}

void wide_gradient_into(at::Tensor& out, const at::Tensor& slope, const at::Tensor& rows, double factor, bool add) {
  bf16_product(
      {.m = slope.size(1), .n = rows.size(1), .k = slope.size(0), .transpose_a = true, .factor = factor, .add = add},
      slope, rows, out);
}

at::Tensor wide_product(const at::Tensor& rows, const at::Tensor& matrix) {
  const at::Tensor own = rows.to(matrix.scalar_type());
  const at::ScalarType type = wide_type(matrix.scalar_type());
  if (type == matrix.scalar_type()) return own.mm(matrix.t());
  if (multiplies_wide(matrix)) {
    at::Tensor out = at::empty({own.size(0), matrix.size(0)}, own.options().dtype(type));
    wide_product_into(out, own, matrix, false);
    return out;
  }
  // A product of fp32 copies is the same.
  return own.to(type).mm(matrix.to(type).t());
}

}  // namespace draftsmith::train
