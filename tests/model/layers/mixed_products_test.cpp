// Linear layers of training steps in bf16 against the same products of fp32 copies.
#include "model/layers/mixed_products.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/bf16_product.h"
#include "base/device_tensors.h"
#include "model/layers/attention.h"
#include "model/layers/feed_forward.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

// A rounding to bf16 is up to 1/256 of the number.
constexpr double kRounding = 1.0 / 256;

// The numbers that x has in bf16; fp64, whose products autocast leaves alone.
at::Tensor rounded(const at::Tensor& x) {
  return x.detach().to(at::kBFloat16).to(at::kDouble);
}

// Largest difference as a share of the largest number.
double share_of_difference(const at::Tensor& found, const at::Tensor& expected) {
  return difference(found, expected) / expected.abs().max().item<double>();
}

class MixedProductsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_product()) GTEST_SKIP() << "this processor has no products of bf16";
  }

  AutocastScope autocast_{at::kCPU, true};
};

TEST_F(MixedProductsTest, OutputsAndGradientsAreThoseOfRoundedNumbers) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {1, 37, 1030}) {
      const at::Tensor x = random_tensor({rows, 70}, 1).to(type).requires_grad_();
      const at::Tensor first = random_tensor({48, 70}, 2).requires_grad_();
      const at::Tensor second = random_tensor({5, 70}, 3).requires_grad_();
      ASSERT_TRUE(multiplies_mixed(x, first));
      const std::vector<at::Tensor> out = mixed_products(x, {first, second});
      ASSERT_EQ(out[0].scalar_type(), at::kBFloat16);
      const at::Tensor narrow = rounded(x), slope_1 = rounded(random_tensor({rows, 48}, 4)),
                       slope_2 = rounded(random_tensor({rows, 5}, 5));
      EXPECT_LT(share_of_difference(out[0], narrow.mm(rounded(first).t())), kRounding);
      EXPECT_LT(share_of_difference(out[1], narrow.mm(rounded(second).t())), kRounding);
      torch::autograd::backward(out, {slope_1.to(at::kBFloat16), slope_2.to(at::kBFloat16)});
      const at::Tensor dx = slope_1.mm(rounded(first)) + slope_2.mm(rounded(second));
      EXPECT_EQ(x.grad().scalar_type(), type);
      EXPECT_LT(share_of_difference(x.grad(), dx), type == at::kFloat ? 1e-5 : kRounding) << rows;
      EXPECT_LT(share_of_difference(first.grad(), slope_1.t().mm(narrow)), 1e-5) << rows;
      EXPECT_LT(share_of_difference(second.grad(), slope_2.t().mm(narrow)), 1e-5) << rows;
    }
  }
}

TEST_F(MixedProductsTest, ReluStopsTheGradientsOfOutputsBelowZero) {
  const at::Tensor x = random_tensor({3, 40, 33}, 1).requires_grad_();
  const at::Tensor weight = random_tensor({64, 33}, 2).requires_grad_();
  const at::Tensor out = mixed_products(x, {weight}, /*relu=*/true).front();
  const at::Tensor product = rounded(x).matmul(rounded(weight).t());
  EXPECT_LT(share_of_difference(out, product.relu()), kRounding);
  EXPECT_FALSE(out.signbit().any().item<bool>());  // no negative zeros
  const at::Tensor slope = rounded(random_tensor({3, 40, 64}, 3));
  out.backward(slope.to(at::kBFloat16));
  const at::Tensor stopped = slope * out.detach().gt(0);
  EXPECT_LT(share_of_difference(x.grad(), stopped.matmul(rounded(weight))), 1e-5);
  EXPECT_LT(share_of_difference(weight.grad(), stopped.view({-1, 64}).t().mm(rounded(x).view({-1, 33}))), 1e-5);
}

TEST_F(MixedProductsTest, ResidualIsAddedWithoutRounding) {
  const at::Tensor residual = random_tensor({50, 48}, 1).requires_grad_();
  const at::Tensor x = random_tensor({50, 70}, 2).requires_grad_();
  const at::Tensor weight = random_tensor({48, 70}, 3).requires_grad_();
  const at::Tensor out = mixed_product_added(residual, x, weight);
  EXPECT_LT(share_of_difference(out, residual.detach() + rounded(x).mm(rounded(weight).t())), 1e-5);
  const at::Tensor slope = random_tensor({50, 48}, 4);
  out.backward(slope);
  EXPECT_TRUE(at::equal(residual.grad(), slope));
  EXPECT_LT(share_of_difference(x.grad(), rounded(slope).mm(rounded(weight))), 1e-5);
  EXPECT_LT(share_of_difference(weight.grad(), rounded(slope).t().mm(rounded(x))), 1e-5);
}

TEST_F(MixedProductsTest, LayerWithoutGradientAddsNothing) {
  const at::Tensor x = random_tensor({9, 16}, 1).requires_grad_();
  const at::Tensor used = random_tensor({8, 16}, 2).requires_grad_(),
                   unused = random_tensor({4, 16}, 3).requires_grad_();
  const std::vector<at::Tensor> out = mixed_products(x, {unused, used});
  out[1].backward(at::ones({9, 8}, at::kBFloat16));
  EXPECT_LT(share_of_difference(x.grad(), at::ones({9, 8}, at::kDouble).mm(rounded(used))), 1e-5);
  EXPECT_FALSE(unused.grad().defined() && unused.grad().abs().max().item<float>() > 0);
}

TEST_F(MixedProductsTest, AreForTrainingInBf16Alone) {
  const at::Tensor x = random_tensor({9, 16}, 1), weight = random_tensor({8, 16}, 2).requires_grad_();
  EXPECT_TRUE(multiplies_mixed(x, weight));
  EXPECT_FALSE(multiplies_mixed(x, weight.detach()));
  EXPECT_FALSE(multiplies_mixed(x.to(at::kHalf), weight));
  EXPECT_FALSE(multiplies_mixed(x.narrow(0, 0, 0), weight));
  {
    const at::NoGradGuard no_gradients;
    EXPECT_FALSE(multiplies_mixed(x, weight));
  }
  const AutocastScope off(at::kCPU, false);
  EXPECT_FALSE(multiplies_mixed(x, weight));
}

}  // namespace
}  // namespace draftsmith::model
