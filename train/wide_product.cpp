#include "train/wide_product.h"

#include "base/bf16_product.h"

namespace draftsmith::train {

namespace {

void bf16_product(const MatrixProduct& product, const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  const at::Tensor a = left.contiguous(), b = right.contiguous();
  const auto rows = [](const at::Tensor& tensor) {
    return RowsInMemory<const uint16_t>{static_cast<const uint16_t*>(tensor.const_data_ptr()), tensor.size(1)};
  };
  multiply_bf16(product, rows(a), rows(b), {out.mutable_data_ptr<float>(), product.n});
}

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
