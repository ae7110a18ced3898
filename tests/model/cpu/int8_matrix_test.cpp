// Products with weights of int8: what is rounded, and that nothing else is.
#include "model/cpu/int8_matrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
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

std::shared_ptr<const Int8Matrix> packed(const at::Tensor& weight, const at::Tensor& bias = {},
                                         Instructions instructions = cpu_instructions()) {
  WeightArena arena;
  return Int8Matrix::pack(weight, bias, arena, instructions);
}

// All tails: of four inputs, of groups, of panels, of vectors, of rows at a time.
TEST(Int8Matrix, RoundsWeightsAndInputsAndNothingElse) {
  for (const Instructions set : available_instructions()) {
    for (const int64_t inputs : {1, 2, 3, 4, 5, 127, 128, 129, 260, 515}) {
      for (const int64_t outputs : {1, 7, 8, 9, 16, 17, 63, 64, 65, 200}) {
        const at::Tensor weight = random_tensor({outputs, inputs}, 3) * 0.1;
        const at::Tensor x = random_tensor({17, inputs}, 4) * 3;
        const at::Tensor expected = expected_product(x, weight);
        const auto layer = packed(weight, {}, set);
        for (int64_t rows = 1; rows <= 17; ++rows) {
          const at::Tensor y = layer->multiply(x.narrow(0, 0, rows), Finish::kNone);
          ASSERT_LT(difference(y, expected.narrow(0, 0, rows)), 2e-5 * std::sqrt(static_cast<double>(inputs)))
              << to_string(set) << " " << inputs << " to " << outputs << ", rows " << rows;
        }
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

TEST(Int8Matrix, GivesEachRowTheSameBitsAloneAndByAllInstructions) {
  const at::Tensor weight = random_tensor({300, 260}, 5), x = random_tensor({1000, 260}, 6);
  const at::Tensor bias = random_tensor({300}, 7);
  const at::Tensor all = packed(weight, bias)->multiply(x, Finish::kNone);
  for (const Instructions set : available_instructions()) {
    const auto layer = packed(weight, bias, set);
    EXPECT_TRUE(at::equal(layer->multiply(x, Finish::kNone), all)) << to_string(set);
    for (int64_t rows = 1; rows <= 17; ++rows) {
      EXPECT_TRUE(at::equal(layer->multiply(x.narrow(0, 17, rows), Finish::kNone), all.narrow(0, 17, rows)))
          << to_string(set) << " rows " << rows;
    }
  }
}

// Sums of 16 bits would overflow where all bytes are the largest ones.
TEST(Int8Matrix, AddsTheLargestBytesExactly) {
  for (const Instructions set : available_instructions()) {
    for (const double sign : {1.0, -1.0}) {
      const at::Tensor y =
          packed(at::full({65, 512}, sign * 127), {}, set)->multiply(at::full({7, 512}, 127.0), Finish::kNone);
      EXPECT_TRUE(at::equal(y, at::full({7, 65}, sign * 127 * 127 * 512))) << to_string(set);
    }
  }
}

TEST(Int8Matrix, TakesEveryTypeOfStoredWeights) {
  const at::Tensor weight = random_tensor({70, 40}, 7).to(at::kBFloat16).to(at::kFloat), x = random_tensor({2, 40}, 8);
  const at::Tensor expected = packed(weight)->multiply(x, Finish::kNone);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    EXPECT_LT(difference(packed(weight.to(type))->multiply(x, Finish::kNone), expected), 1e-2) << at::toString(type);
  }
}

TEST(Int8Matrix, KeepsWhatIsNoNumberInItsRow) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const Instructions set : available_instructions()) {
    const auto layer = packed(random_tensor({70, 300}, 9), {}, set);
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
}

TEST(Int8Matrix, TakesExtremeNumbers) {
  for (const double size : {0.0, 1e-44, 1e-38, 1e33}) {
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

TEST(Int8Matrix, RefusesTensorsThatCannotBePacked) {
  EXPECT_EQ(packed(at::ones({3, 3}, at::kLong)), nullptr);
  EXPECT_EQ(packed(at::ones({0, 3})), nullptr);
}

}  // namespace
}  // namespace draftsmith::model
