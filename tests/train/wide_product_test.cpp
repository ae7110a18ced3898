// Products of bf16 matrices with results in fp32.
#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "train/objectives/linear_loss.h"

namespace draftsmith::train {
namespace {

at::Tensor bf16_numbers(at::IntArrayRef shape, const char* stream) {
  return normal_tensor(shape, 1, 3, stream, at::kFloat).to(at::kBFloat16);
}

TEST(WideProduct, GradientOfTheMatrixIsWrittenAndAdded) {
  const at::Tensor slope = bf16_numbers({37, 211}, "slope"), rows = bf16_numbers({37, 19}, "rows");
  if (!multiplies_wide(rows)) GTEST_SKIP() << "this processor has no products of bf16";
  const at::Tensor expected = slope.to(at::kFloat).t().mm(rows.to(at::kFloat));
  at::Tensor out = at::full({211, 19}, std::numeric_limits<float>::quiet_NaN());
  wide_gradient_into(out, slope, rows, 1, false);
  EXPECT_LT((out - expected).abs().max().item<float>(), 1e-4);
  wide_gradient_into(out, slope, rows, 0.5, true);
  EXPECT_LT((out - 1.5 * expected).abs().max().item<float>(), 1e-4);
}

TEST(WideProduct, IsThatOfFp32Copies) {
  const at::Tensor rows = bf16_numbers({5, 64}, "rows"), matrix = bf16_numbers({300, 64}, "matrix");
  const at::Tensor expected = rows.to(at::kFloat).mm(matrix.to(at::kFloat).t());
  EXPECT_LT((wide_product(rows, matrix) - expected).abs().max().item<float>(), 1e-4);
}

}  // namespace
}  // namespace draftsmith::train
