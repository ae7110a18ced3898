// Products of bf16 matrices against those of the same numbers in fp64.
#include "base/bf16_product.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/aten.h"
#include "base/files.h"
#include "tests/support/tensors.h"

namespace draftsmith {
namespace {

class Bf16Products : public testing::Test {
 protected:
  void SetUp() override {
    if (has_bf16_product()) return;
    const bool has_pairs = read_file("/proc/cpuinfo").find(" avx512_bf16") != std::string::npos;
    ASSERT_FALSE(has_pairs && at::hasMKLDNN());
    GTEST_SKIP() << "this processor has no such products";
  }
};

RowsInMemory<const uint16_t> bf16_rows(const at::Tensor& bf16) {
  return {static_cast<const uint16_t*>(bf16.const_data_ptr()), bf16.stride(0)};
}

// Operands as they are stored, with `beyond` numbers behind each row that no product may read.
at::Tensor stored_bf16(int64_t rows, int64_t columns, uint64_t seed, int64_t beyond) {
  const at::Tensor all = random_tensor({rows, columns + beyond}, seed).to(at::kBFloat16);
  all.slice(1, columns).fill_(std::nan(""));
  return all.slice(1, 0, columns);
}

// Largest difference from the product in fp64, as a share of what k products may add up to.
double product_error(const MatrixProduct& product, int64_t beyond) {
  const auto [m, n, k, transpose_a, transpose_b, add] = product;
  const at::Tensor a = transpose_a ? stored_bf16(k, m, 1, beyond) : stored_bf16(m, k, 1, beyond);
  const at::Tensor b = transpose_b ? stored_bf16(n, k, 2, beyond) : stored_bf16(k, n, 2, beyond);
  const at::Tensor memory = random_tensor({m, n + beyond}, 3).to(at::kFloat), before = memory.clone();
  multiply_bf16(product, bf16_rows(a), bf16_rows(b), {memory.mutable_data_ptr<float>(), n + beyond});
  EXPECT_TRUE(memory.slice(1, n).equal(before.slice(1, n))) << "numbers behind rows were written";
  const at::Tensor left = transpose_a ? a.t() : a, right = transpose_b ? b.t() : b;
  at::Tensor expected = left.to(at::kDouble).mm(right.to(at::kDouble));
  if (add) expected += before.slice(1, 0, n);
  return difference(memory.slice(1, 0, n), expected) / static_cast<double>(k + 1);
}

TEST_F(Bf16Products, AreThoseOfTheirNumbers) {
  for (const int64_t m : {1, 7, 8, 9, 200}) {
    for (const int64_t n : {1, 16, 33, 49, 100}) {
      for (const int64_t k : {0, 1, 2, 31, 33, 300, 1100}) {
        for (const int form : {0, 1, 2, 3}) {
          MatrixProduct product{.m = m, .n = n, .k = k, .add = m % 2 == 0};
          product.transpose_a = (form & 1) != 0;
          product.transpose_b = (form & 2) != 0;
          EXPECT_LT(product_error(product, k % 3), 1e-6) << m << " " << n << " " << k << " " << form;
        }
      }
    }
  }
}

TEST_F(Bf16Products, ShowNumbersThatAreNone) {
  const at::Tensor a = stored_bf16(9, 40, 1, 0), b = stored_bf16(20, 40, 2, 0), out = at::empty({9, 20}, at::kFloat);
  a[3][39].fill_(std::nan(""));
  multiply_bf16({.m = 9, .n = 20, .k = 40, .transpose_b = true}, bf16_rows(a), bf16_rows(b),
                {out.mutable_data_ptr<float>(), 20});
  EXPECT_TRUE(out[3].isnan().all().item<bool>());
  EXPECT_EQ(out.isnan().sum().item<int64_t>(), 20);
}

}  // namespace
}  // namespace draftsmith
