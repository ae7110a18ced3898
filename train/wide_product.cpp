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

// out = rows W^T + (add ? out : 0)
void bf16_product(at::Tensor& out, const at::Tensor& rows, const at::Tensor& matrix, bool add) {
  constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
  const at::Tensor a = rows.contiguous(), b = matrix.contiguous();
  const auto words = [](const at::Tensor& tensor) { return static_cast<const uint16_t*>(tensor.const_data_ptr()); };
  const auto number = [](int64_t size) { return static_cast<int>(size); };
  const int m = number(a.size(0)), n = number(b.size(0)), k = number(a.size(1));
  if (m == 0 || n == 0) return;
  cblas_gemm_bf16bf16f32(kRowMajor, kAsItIs, kTransposed, m, n, k, 1.0F, words(a), k, words(b), k, add ? 1.0F : 0.0F,
                         out.mutable_data_ptr<float>(), n);
}
#else
bool has_bf16_product() {
  return false;
}

void bf16_product(at::Tensor& /*out*/, const at::Tensor& /*rows*/, const at::Tensor& /*matrix*/, bool /*add*/) {}
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
  if (matrix.is_cpu()) return bf16_product(out, rows, matrix, add);
  if (add) {
    out.add_(at::mm(rows, matrix.t(), out.scalar_type()));
  } else {
    at::mm_out(out, rows, matrix.t(), out.scalar_type());
  }
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
