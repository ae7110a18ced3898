#include "train/wide_product.h"

namespace draftsmith::train {

at::ScalarType wide_type(at::ScalarType matrix) {
  return matrix == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor wide_product(const at::Tensor& rows, const at::Tensor& matrix) {
  const at::Tensor own = rows.to(matrix.scalar_type());
  const at::ScalarType type = wide_type(matrix.scalar_type());
  if (type == matrix.scalar_type()) return own.mm(matrix.t());
  if (matrix.is_cuda()) return at::mm(own, matrix.t(), type);
  // CPUs have no such product, but one of fp32 copies is the same.
  return own.to(type).mm(matrix.to(type).t());
}

}  // namespace draftsmith::train
