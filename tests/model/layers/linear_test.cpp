#include "model/layers/linear.h"

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

const std::vector<std::pair<int64_t, int64_t>> kShapes{{64, 64}, {1, 5}, {63, 17}, {65, 96}, {200, 129}, {3000, 257}};

TEST(LinearPacked, EqualsThePlainLayerForAnyShapeAndNumberOfRows) {
  WeightArena arena;
  for (const auto& [outputs, inputs] : kShapes) {
    const at::Tensor weight = random_tensor({outputs, inputs}, 1);
    Linear layer(weight);
    layer.pack(arena);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 40, 193, 1030}) {
      const at::Tensor x = random_tensor({rows, inputs}, 2);
      const at::Tensor exact = at::linear(x.to(at::kDouble), weight.to(at::kDouble));
      EXPECT_LT(difference(layer(x), exact), 1e-4) << outputs << "x" << inputs << " rows " << rows;
      const at::Tensor residual = random_tensor({rows, outputs}, 3);
      EXPECT_LT(difference(layer.add_to(residual, x), exact + residual), 1e-4);
    }
  }
}

TEST(LinearPacked, KeepsOnlyWhatIsPackedAndConvertsItOnTheWay) {
  for (const at::ScalarType stored : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = random_tensor({70, 33}, 4).to(stored);
    WeightArena arena(at::kFloat);
    Linear layer(weight);
    layer.pack(arena);
    EXPECT_EQ(layer.weight().scalar_type(), at::kFloat);
    EXPECT_EQ(layer.weight().is_meta(), layer.packed());
    for (const int64_t rows : {0, 1, 9}) {
      const at::Tensor x = random_tensor({rows, 33}, 5);
      const at::Tensor expected = at::linear(x, weight.to(at::kFloat));
      EXPECT_TRUE(at::allclose(layer(x), expected, 1e-4, 1e-4)) << stored << " rows " << rows;
      EXPECT_TRUE(at::allclose(layer.add_to(expected, x), 2 * expected, 1e-4, 1e-4)) << stored << " rows " << rows;
    }
    if (layer.packed()) {
      EXPECT_THROW(layer(random_tensor({1, 33}, 6).requires_grad_()), std::logic_error);
      EXPECT_THROW(layer.unpack(), std::logic_error);
    }
  }
}

TEST(LinearPacked, FusedActivationsEqualTheirDefinitions) {
  WeightArena arena;
  const at::Tensor weight = random_tensor({70, 33}, 4);
  for (const int64_t rows : {1, 8, 1030}) {
    const at::Tensor x = random_tensor({rows, 33}, 5);
    const at::Tensor plain = at::linear(x, weight);
    for (const PostOp then : {PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
      Linear layer(weight);
      layer.pack(arena, then);
      at::Tensor expected = plain;
      if (layer.fuses(x)) {
        expected = then == PostOp::kRelu       ? plain.relu()
                   : then == PostOp::kGelu     ? at::gelu(plain)
                   : then == PostOp::kGeluTanh ? at::gelu(plain, "tanh")
                                               : at::silu(plain);
      }
      EXPECT_LT(difference(layer(x), expected), 1e-4) << static_cast<int>(then);
    }
  }
}

TEST(LinearPacked, GradientsReachTheInputOfAFrozenLayer) {
  WeightArena arena;
  Linear layer(random_tensor({20, 10}, 10));
  layer.pack(arena, PostOp::kRelu);
  const at::Tensor x = random_tensor({3, 10}, 11).requires_grad_(true);
  EXPECT_FALSE(layer.fuses(x));
  layer.add_to(random_tensor({3, 20}, 12), x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace draftsmith::model
