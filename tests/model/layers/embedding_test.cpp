// Embeddings whose gradients are added row by row.
#include "model/layers/embedding.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/aten.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

at::Tensor gradient_by_autograd(const at::Tensor& values, const at::Tensor& ids, const at::Tensor& upstream) {
  const at::Tensor table = values.clone().requires_grad_(true);
  (at::embedding(table, ids) * upstream).sum().backward();
  return table.grad();
}

class EmbeddedRows : public testing::Test {
 protected:
  const at::Tensor values_ = random_tensor({50, 130}, 1);
  const at::Tensor ids_ = at::arange(0, 60, at::kLong).remainder(7).mul(5).view({4, 15});  // each several times
  const at::Tensor upstream_ = random_tensor({4, 15, 130}, 2);
};

TEST_F(EmbeddedRows, HaveTheGradientOfLibTorchsOperator) {
  const at::Tensor table = values_.clone().requires_grad_(true);
  const at::Tensor rows = embedded(table, ids_);
  EXPECT_TRUE(rows.equal(at::embedding(values_, ids_)));
  (rows * upstream_).sum().backward();
  EXPECT_TRUE(at::allclose(table.grad(), gradient_by_autograd(values_, ids_, upstream_), 1e-5, 1e-6));
}

// As a tied head's gradient, and those of an encoder and of earlier micro-batches.
TEST_F(EmbeddedRows, AddToTheGradientThatIsThere) {
  const at::Tensor table = values_.clone().requires_grad_(true);
  const at::Tensor factor = random_tensor({50, 130}, 3);
  ((embedded(table, ids_) * upstream_).sum() + (embedded(table, ids_) * upstream_).sum() + (table * factor).sum())
      .backward();
  (embedded(table, ids_) * upstream_).sum().backward();
  const at::Tensor expected = gradient_by_autograd(values_, ids_, upstream_) * 3 + factor;
  EXPECT_TRUE(at::allclose(table.grad(), expected, 1e-5, 1e-5));
}

TEST_F(EmbeddedRows, GiveTheSameBitsForEveryNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> gradients;
  for (const int number : {1, 2}) {
    at::set_num_threads(number);
    const at::Tensor table = values_.clone().requires_grad_(true);
    (embedded(table, ids_) * upstream_).sum().backward();
    gradients.push_back(table.grad());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

TEST_F(EmbeddedRows, OfOtherTypesAndFrozenTablesAreLibTorchs) {
  const at::Tensor wide = values_.to(at::kDouble).requires_grad_(true);
  (embedded(wide, ids_) * upstream_).sum().backward();
  EXPECT_TRUE(at::allclose(wide.grad().to(at::kFloat), gradient_by_autograd(values_, ids_, upstream_), 1e-5, 1e-5));
  EXPECT_FALSE(embedded(values_, ids_).requires_grad());
}

}  // namespace
}  // namespace draftsmith::model
