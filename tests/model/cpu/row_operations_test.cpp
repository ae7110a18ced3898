// Norms, activations and rotations of rows against LibTorch's in fp64.
#include "model/cpu/row_operations.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

at::Tensor normalized(const RowNorm& norm, const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  normalize_rows(norm, x.const_data_ptr<float>(), x.size(0), x.size(1), y.mutable_data_ptr<float>());
  return y;
}

TEST(RowOperations, NormsOfEveryWidth) {
  for (const int64_t width : {1, 5, 15, 16, 17, 33, 512, 1000}) {
    const at::Tensor x = random_tensor({3, width}, 1) * 2 + 0.5;
    const at::Tensor weight = random_tensor({width}, 2), bias = random_tensor({width}, 3);
    const auto* w = weight.const_data_ptr<float>();
    const at::Tensor wide = x.to(at::kDouble);
    const at::Tensor rms = wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6) * weight;
    EXPECT_LT(difference(normalized({w, nullptr, 1e-6, false}, x), rms), 1e-5) << width;
    const at::Tensor centered = wide - wide.mean(-1, true);
    const at::Tensor layer = centered * at::rsqrt(centered.square().mean(-1, true) + 1e-5) * weight + bias;
    EXPECT_LT(difference(normalized({w, bias.const_data_ptr<float>(), 1e-5, true}, x), layer), 1e-5) << width;
  }
}

TEST(RowOperations, NormsAreOfEachRowAloneAndKeepNan) {
  at::Tensor x = random_tensor({4, 40}, 4);
  const at::Tensor weight = at::ones({40});
  const RowNorm norm{weight.const_data_ptr<float>(), nullptr, 1e-6, false};
  const at::Tensor together = normalized(norm, x);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_TRUE(at::equal(normalized(norm, x.narrow(0, row, 1)), together.narrow(0, row, 1)));
  }
  x[1][7] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor damaged = normalized(norm, x);
  EXPECT_TRUE(damaged[1].isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(damaged[2], together[2]));
}

TEST(RowOperations, ActivationsAreLibTorchs) {
  const at::Tensor x = at::cat({random_tensor({1003}, 5) * 4, at::tensor({0.0F, -0.0F, 60.0F, -60.0F, 1e-30F, -3e4F})});
  for (const PostOp then : {PostOp::kNone, PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    at::Tensor y = x.clone();
    activate(then, y.mutable_data_ptr<float>(), y.numel());
    const at::Tensor expected = applied(then, x.to(at::kDouble));
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, 3e-6, 3e-7)) << static_cast<int>(then);
    at::Tensor none = at::full({37}, std::numeric_limits<float>::quiet_NaN());
    activate(then, none.mutable_data_ptr<float>(), none.numel());
    EXPECT_TRUE(none.isnan().all().item<bool>()) << static_cast<int>(then);
  }
}

TEST(RowOperations, RotatesPairsAndLeavesTheRest) {
  const at::Tensor x = random_tensor({2, 10}, 6);
  const at::Tensor cosine = random_tensor({3}, 7), sine = random_tensor({3}, 8);
  at::Tensor y = x.clone();
  rotate_heads(y.mutable_data_ptr<float>(), 2, 10, cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(), 3);
  const at::Tensor first = x.narrow(1, 0, 3), second = x.narrow(1, 3, 3);
  const at::Tensor expected =
      at::cat({first * cosine - second * sine, second * cosine + first * sine, x.narrow(1, 6, 4)}, 1);
  EXPECT_LT(difference(y, expected), 1e-6);
}

}  // namespace
}  // namespace draftsmith::model
