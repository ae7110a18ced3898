// Products with weights of int8: what is rounded, and that nothing else is.
#include "model/cpu/int8_matrix.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/layers/linear.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using Finish = PackedWeights::Finish;

// Rounds to int8 with one scale for each `group` numbers of a row, and back: fp64 [rows,n].
at::Tensor rounded(const at::Tensor& rows, int64_t group) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : rows.to(at::kDouble).split(group, 1)) {
    const at::Tensor scale = part.abs().amax(1, true) / 127;
    parts.push_back(at::where(scale.gt(0), (part / scale).round() * scale, 0));
  }
  return at::cat(parts, 1);
}

at::Tensor expected_product(const at::Tensor& x, const at::Tensor& weight) {
  return rounded(x, kInt8Group).matmul(rounded(weight, weight.size(1)).t());
}

std::shared_ptr<const Int8Matrix> packed(const at::Tensor& weight, const at::Tensor& bias = {}, bool portable = false) {
  WeightArena arena;
  return Int8Matrix::pack(weight, bias, arena, portable);
}

// All tails: of four inputs, of groups, of panels, of rows at a time.
TEST(Int8Matrix, RoundsWeightsAndInputsAndNothingElse) {
  for (const bool portable : {false, true}) {
    for (const int64_t inputs : {1, 3, 4, 127, 128, 129, 260, 515}) {
      for (const int64_t outputs : {1, 63, 64, 65, 200}) {
        const at::Tensor weight = random_tensor({outputs, inputs}, 3) * 0.1;
        const at::Tensor x = random_tensor({7, inputs}, 4) * 3;
        const at::Tensor y = packed(weight, {}, portable)->multiply(x, Finish::kNone);
        EXPECT_LT(difference(y, expected_product(x, weight)), 2e-5 * std::sqrt(static_cast<double>(inputs)))
            << inputs << " to " << outputs << (portable ? " portable" : "");
      }
    }
  }
}

TEST(Int8Matrix, AddsBiasAndResidualAndFinishes) {
  const at::Tensor weight = random_tensor({70, 50}, 1), bias = random_tensor({70}, 2);
  const at::Tensor x = random_tensor({3, 5, 50}, 3), residual = random_tensor({3, 5, 70}, 4);
  const auto layer = packed(weight, bias);
  const at::Tensor plain = expected_product(x.view({15, 50}), weight).view({3, 5, 70}) + bias;
  EXPECT_LT(difference(layer->multiply(x, Finish::kNone), plain), 1e-4);
  EXPECT_LT(difference(layer->multiply(x, Finish::kRelu), plain.relu()), 1e-4);
  EXPECT_LT(difference(layer->add_to(residual, x), plain + residual), 1e-4);
  EXPECT_EQ(layer->multiply(x.narrow(0, 0, 0), Finish::kNone).sizes(), (std::vector<int64_t>{0, 5, 70}));
}

TEST(Int8Matrix, GivesEachRowTheSameBitsAlone) {
  const at::Tensor weight = random_tensor({300, 260}, 5), x = random_tensor({40, 260}, 6);
  const auto layer = packed(weight);
  const at::Tensor together = layer->multiply(x, Finish::kNone);
  for (int64_t row = 0; row < 40; ++row) {
    EXPECT_TRUE(at::equal(layer->multiply(x.narrow(0, row, 1), Finish::kNone), together.narrow(0, row, 1))) << row;
  }
  EXPECT_TRUE(at::equal(packed(weight, {}, true)->multiply(x, Finish::kNone), together)) << "portable";
}

TEST(Int8Matrix, TakesEveryTypeOfStoredWeights) {
  const at::Tensor weight = random_tensor({70, 40}, 7).to(at::kBFloat16).to(at::kFloat), x = random_tensor({2, 40}, 8);
  const at::Tensor expected = packed(weight)->multiply(x, Finish::kNone);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    EXPECT_LT(difference(packed(weight.to(type))->multiply(x, Finish::kNone), expected), 1e-2) << at::toString(type);
  }
}

TEST(Int8Matrix, KeepsWhatIsNoNumberInItsRow) {
  const auto layer = packed(random_tensor({70, 300}, 9));
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinite, -kInfinite}) {
    for (const Finish finish : {Finish::kNone, Finish::kRelu}) {
      at::Tensor x = random_tensor({3, 300}, 10);
      x[1][299] = bad;
      const at::Tensor y = layer->multiply(x, finish);
      EXPECT_TRUE(y[1].isnan().all().item<bool>());
      EXPECT_FALSE(y[0].isnan().any().item<bool>());
      EXPECT_FALSE(y[2].isnan().any().item<bool>());
    }
  }
}

TEST(Int8Matrix, TakesExtremeNumbers) {
  for (const double size : {0.0, 1e-44, 1e-38, 1e37}) {
    const at::Tensor weight = random_tensor({3, 8}, 11), x = at::full({1, 8}, size, at::kFloat);
    const at::Tensor y = packed(weight)->multiply(x, Finish::kNone);
    EXPECT_TRUE(y.isfinite().all().item<bool>()) << size;
    const at::Tensor tiny = packed(weight * size)->multiply(at::ones({1, 8}), Finish::kNone);
    EXPECT_TRUE(tiny.isfinite().all().item<bool>()) << size;
  }
}

TEST(Int8Matrix, RefusesWeightsThatAreNoNumbers) {
  at::Tensor weight = random_tensor({3, 8}, 12);
  weight[2][7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error_of<RunError>([&] { packed(weight); }).find("not finite"), std::string::npos);
}

TEST(Int8Linear, KeepsNoOtherWeights) {
  WeightArena arena(at::kChar);
  Linear layer(random_tensor({70, 40}, 13), random_tensor({70}, 14));
  const at::Tensor x = random_tensor({2, 40}, 15);
  const at::Tensor exact = layer(x);
  layer.pack(arena);
  EXPECT_TRUE(layer.weight().is_meta());
  EXPECT_LT(difference(layer(x), exact), 0.05 * largest(exact));
}

}  // namespace
}  // namespace draftsmith::model
