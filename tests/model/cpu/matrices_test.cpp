// Products with weights of fp32, bf16 and int8, by every set of instructions that this machine has.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/cpu/float_matrix.h"
#include "model/cpu/int8_matrix.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using Finish = PackedWeights::Finish;

template <class Stored>
class FloatMatrixOf : public testing::Test {
 protected:
  static auto packed(const at::Tensor& weight, Instructions instructions, const at::Tensor& bias = {}) {
    WeightArena arena;
    return FloatMatrix<Stored>::pack(weight, bias, arena, instructions);
  }

  // Returns x W^T with the weights as they are stored, in fp64.
  static at::Tensor expected_product(const at::Tensor& x, const at::Tensor& weight) {
    const at::ScalarType stored = c10::CppTypeToScalarType<Stored>::value;
    return x.to(at::kDouble).matmul(weight.to(stored).to(at::kDouble).t());
  }

  // Calls body(instructions) for each set of this machine.
  template <class Body>
  static void with_each_set(const Body& body) {
    for (const Instructions set : available_instructions()) {
      SCOPED_TRACE(to_string(set));
      body(set);
    }
  }
};

using StoredTypes = testing::Types<float, at::BFloat16>;
TYPED_TEST_SUITE(FloatMatrixOf, StoredTypes);

TYPED_TEST(FloatMatrixOf, ProductsEqualFp64ForEveryTail) {
  TestFixture::with_each_set([](Instructions set) {
    for (const int64_t inputs : {1, 2, 15, 16, 17, 63, 130}) {
      for (const int64_t outputs : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100}) {
        const at::Tensor weight = random_tensor({outputs, inputs}, 3), x = random_tensor({17, inputs}, 4);
        const at::Tensor expected = TestFixture::expected_product(x, weight);
        const auto layer = TestFixture::packed(weight, set);
        for (int64_t rows = 1; rows <= 17; ++rows) {
          const at::Tensor y = layer->multiply(x.narrow(0, 0, rows), Finish::kNone);
          ASSERT_LT(difference(y, expected.narrow(0, 0, rows)), 1e-5 * std::sqrt(static_cast<double>(inputs)))
              << inputs << " to " << outputs << ", rows " << rows;
        }
      }
    }
  });
}

TYPED_TEST(FloatMatrixOf, AddsBiasAndResidualAndFinishes) {
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor weight = random_tensor({70, 50}, 1), bias = random_tensor({70}, 2);
    const at::Tensor x = random_tensor({3, 5, 50}, 3), residual = random_tensor({3, 5, 70}, 4);
    const auto layer = TestFixture::packed(weight, set, bias);
    const at::Tensor plain = TestFixture::expected_product(x.view({15, 50}), weight).view({3, 5, 70}) + bias;
    EXPECT_LT(difference(layer->multiply(x, Finish::kNone), plain), 1e-4);
    EXPECT_LT(difference(layer->multiply(x, Finish::kRelu), plain.relu()), 1e-4);
    EXPECT_LT(difference(layer->add_to(residual, x), plain + residual), 1e-4);
    EXPECT_EQ(layer->multiply(x.narrow(0, 0, 0), Finish::kNone).sizes(), (std::vector<int64_t>{0, 5, 70}));
  });
}

TYPED_TEST(FloatMatrixOf, GivesEachRowTheSameBitsAlone) {
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor x = random_tensor({1000, 260}, 6);
    const auto layer = TestFixture::packed(random_tensor({300, 260}, 5), set, random_tensor({300}, 7));
    const at::Tensor all = layer->multiply(x, Finish::kNone);
    for (int64_t rows = 1; rows <= 17; ++rows) {
      EXPECT_TRUE(at::equal(layer->multiply(x.narrow(0, 17, rows), Finish::kNone), all.narrow(0, 17, rows))) << rows;
    }
  });
}

// Both fuse multiplication and addition, and add in the order of the inputs.
TYPED_TEST(FloatMatrixOf, GivesTheSameBitsByAvx2AndAvx512) {
  if (available_instructions().back() < Instructions::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  const at::Tensor weight = random_tensor({100, 77}, 8), x = random_tensor({7, 77}, 9);
  EXPECT_TRUE(at::equal(TestFixture::packed(weight, Instructions::kAvx2)->multiply(x, Finish::kNone),
                        TestFixture::packed(weight, Instructions::kAvx512)->multiply(x, Finish::kNone)));
}

TYPED_TEST(FloatMatrixOf, KeepsNanAndInfinityInTheirRows) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor weight = random_tensor({70, 300}, 10);
    const auto layer = TestFixture::packed(weight, set);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinite, -kInfinite}) {
      at::Tensor x = random_tensor({7, 300}, 11);
      x[1][299] = bad;
      const at::Tensor exact = TestFixture::expected_product(x, weight);
      for (const Finish finish : {Finish::kNone, Finish::kRelu}) {
        const at::Tensor y = layer->multiply(x, finish);
        const at::Tensor wanted = finish == Finish::kRelu ? exact.relu() : exact;
        EXPECT_TRUE(at::equal(y.isnan(), wanted.isnan()));
        EXPECT_TRUE(at::equal(y.isinf(), wanted.isinf()));
        EXPECT_FALSE(y.isfinite().logical_not().sum(1).gt(0).narrow(0, 2, 5).any().template item<bool>());
      }
    }
  });
}

TYPED_TEST(FloatMatrixOf, TakesEveryTypeOfStoredWeightsAndNothingElse) {
  const at::Tensor weight = random_tensor({70, 40}, 13).to(at::kBFloat16), x = random_tensor({2, 40}, 14);
  const auto product = [&](const at::Tensor& w) {
    return TestFixture::packed(w, cpu_instructions())->multiply(x, Finish::kNone);
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    EXPECT_TRUE(at::equal(product(weight.to(type)), product(weight))) << at::toString(type);
  }
  EXPECT_LT(difference(product(weight.to(at::kHalf)), product(weight)), 1e-2);
  EXPECT_EQ(TestFixture::packed(at::ones({3, 3}, at::kLong), cpu_instructions()), nullptr);
  EXPECT_EQ(TestFixture::packed(at::ones({3, 3}, at::TensorOptions(at::kMeta)), cpu_instructions()), nullptr);
}

TEST(Bf16Matrix, RoundsWeightsToNearest) {
  WeightArena arena;
  const at::Tensor weight = random_tensor({200, 90}, 15);
  const at::Tensor read = Bf16Matrix::pack(weight, {}, arena)->multiply(at::eye(90), Finish::kNone).t();
  EXPECT_TRUE(at::equal(read, weight.to(at::kBFloat16).to(at::kFloat)));
}

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

}  // namespace
}  // namespace draftsmith::model
