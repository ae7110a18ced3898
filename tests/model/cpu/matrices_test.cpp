// Products with weights of fp32, bf16 and int8, by every set of instructions that this machine has.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/cpu/packed_weights.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using Finish = PackedWeights::Finish;

std::vector<Instructions> available_instructions() {
  using enum Instructions;
  std::vector<Instructions> sets{kPortable, kAvx2, kAvx512, kAmx};
  std::erase_if(sets, [](Instructions set) { return set > cpu_instructions(); });
  return sets;
}

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Rounds to int8 with one scale for each `group` numbers of a row, and back: fp64 [rows,n].
at::Tensor rounded_to_int8(const at::Tensor& rows, int64_t group) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : rows.to(at::kDouble).split(group, 1)) {
    const at::Tensor scale = part.abs().amax(1, true) / 127;
    parts.push_back(at::where(scale.gt(0), (part / scale).round() * scale, 0));
  }
  return at::cat(parts, 1);
}

template <class Type>
class MatrixOf : public testing::Test {
 protected:
  static constexpr bool kInt8 = Type::value == at::kChar;

  static auto packed(const at::Tensor& weight, Instructions instructions = cpu_instructions(),
                     const at::Tensor& bias = {}) {
    WeightArena arena;
    return packed_weights(weight, bias, Type::value, arena, instructions);
  }

  // Returns x W^T in fp64, with the weights as they are stored; for int8 the inputs are rounded, too.
  static at::Tensor expected_product(const at::Tensor& x, const at::Tensor& weight) {
    if (kInt8) return rounded_to_int8(x, kInt8Group).matmul(rounded_to_int8(weight, weight.size(1)).t());
    return x.to(at::kDouble).matmul(weight.to(Type::value).to(at::kDouble).t());
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

template <at::ScalarType type>
using StoredAs = std::integral_constant<at::ScalarType, type>;
using Matrices = testing::Types<StoredAs<at::kFloat>, StoredAs<at::kBFloat16>, StoredAs<at::kChar>>;
TYPED_TEST_SUITE(MatrixOf, Matrices);

// All tails: of four inputs, of groups, of panels, of vectors, of rows at a time.
TYPED_TEST(MatrixOf, ProductsEqualFp64ForEveryTail) {
  TestFixture::with_each_set([](Instructions set) {
    for (const int64_t inputs : {1, 2, 3, 4, 5, 15, 16, 17, 63, 127, 128, 129, 515}) {
      for (const int64_t outputs : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100}) {
        const at::Tensor weight = random_tensor({outputs, inputs}, 3) * 0.1, x = random_tensor({17, inputs}, 4) * 3;
        const at::Tensor expected = TestFixture::expected_product(x, weight);
        const auto layer = TestFixture::packed(weight, set);
        for (int64_t rows = 1; rows <= 17; ++rows) {
          const at::Tensor y = layer->multiply(x.narrow(0, 0, rows), Finish::kNone);
          ASSERT_LT(difference(y, expected.narrow(0, 0, rows)),
                    (TestFixture::kInt8 ? 2e-5 : 4e-6) * std::sqrt(static_cast<double>(inputs)))
              << inputs << " to " << outputs << ", rows " << rows;
        }
      }
    }
  });
}

TYPED_TEST(MatrixOf, AddsBiasAndResidualAndFinishes) {
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor weight = random_tensor({70, 50}, 1), bias = random_tensor({70}, 2);
    const at::Tensor x = random_tensor({3, 5, 50}, 3), residual = random_tensor({3, 5, 70}, 4);
    const auto layer = TestFixture::packed(weight, set, bias);
    const at::Tensor plain = TestFixture::expected_product(x.view({15, 50}), weight).view({3, 5, 70}) + bias;
    EXPECT_LT(difference(layer->multiply(x, Finish::kNone), plain), 1e-4);
    EXPECT_LT(difference(layer->multiply(x, Finish::kRelu), plain.relu()), 1e-4);
    EXPECT_LT(difference(layer->multiply(x, Finish::kNone, residual), plain + residual), 1e-4);
    EXPECT_EQ(layer->multiply(x.narrow(0, 0, 0), Finish::kNone).sizes(), (std::vector<int64_t>{0, 5, 70}));
  });
}

TYPED_TEST(MatrixOf, GivesEachRowTheSameBitsAlone) {
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor x = random_tensor({1000, 260}, 6);
    const auto layer = TestFixture::packed(random_tensor({300, 260}, 5), set, random_tensor({300}, 7));
    const at::Tensor all = layer->multiply(x, Finish::kNone);
    for (int64_t rows = 1; rows <= 17; ++rows) {
      EXPECT_TRUE(at::equal(layer->multiply(x.narrow(0, 17, rows), Finish::kNone), all.narrow(0, 17, rows))) << rows;
    }
  });
}

// Sums of int8 are exact. Those of floats fuse multiplication and addition in the order of the inputs from AVX2 on.
TYPED_TEST(MatrixOf, GivesTheSameBitsByOtherInstructions) {
  const at::Tensor weight = random_tensor({100, 260}, 8), x = random_tensor({7, 260}, 9);
  at::Tensor expected;
  TestFixture::with_each_set([&](Instructions set) {
    if (!TestFixture::kInt8 && set < Instructions::kAvx2) return;
    const at::Tensor y = TestFixture::packed(weight, set)->multiply(x, Finish::kNone);
    if (!expected.defined()) expected = y;
    EXPECT_TRUE(at::equal(y, expected));
  });
}

TYPED_TEST(MatrixOf, KeepsWhatIsNoNumberInItsRow) {
  TestFixture::with_each_set([](Instructions set) {
    const at::Tensor weight = random_tensor({70, 300}, 10);
    const auto layer = TestFixture::packed(weight, set);
    for (const float bad : {kNotANumber, kInfinite, -kInfinite}) {
      at::Tensor x = random_tensor({7, 300}, 11);
      x[1][299] = bad;
      const at::Tensor exact = x.matmul(weight.t());
      for (const Finish finish : {Finish::kNone, Finish::kRelu}) {
        const at::Tensor y = layer->multiply(x, finish), wanted = finish == Finish::kRelu ? exact.relu() : exact;
        // Rounding to int8 makes a NaN of the row.
        EXPECT_TRUE(at::equal(y.isnan(), TestFixture::kInt8 ? exact.isfinite().logical_not() : wanted.isnan()));
        EXPECT_TRUE(TestFixture::kInt8 || at::equal(y.isinf(), wanted.isinf()));
      }
    }
  });
}

TYPED_TEST(MatrixOf, TakesEveryTypeOfStoredWeightsAndNothingElse) {
  const at::Tensor weight = random_tensor({70, 40}, 13).to(at::kBFloat16), x = random_tensor({2, 40}, 14);
  const auto product = [&](const at::Tensor& w) { return TestFixture::packed(w)->multiply(x, Finish::kNone); };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    EXPECT_LT(difference(product(weight.to(type)), product(weight)), 1e-2) << at::toString(type);
  }
  EXPECT_EQ(TestFixture::packed(at::ones({3, 3}, at::kLong)), nullptr);
}

TYPED_TEST(MatrixOf, JoinsTheOutputsOfSeveralWeights) {
  const at::Tensor weight = random_tensor({150, 42}, 15), x = random_tensor({3, 42}, 16);
  const at::Tensor expected = TestFixture::packed(weight)->multiply(x, Finish::kNone);
  // Parts that end within a panel, one of them strided.
  std::vector<at::Tensor> parts = weight.split_with_sizes({70, 1, 79});
  parts[0] = parts[0].t().contiguous().t();
  WeightArena arena;
  EXPECT_TRUE(at::equal(packed_weights(parts, {}, TypeParam::value, arena)->multiply(x, Finish::kNone), expected));
  parts[1] = parts[1].to(at::kDouble);
  EXPECT_TRUE(at::equal(packed_weights(parts, {}, TypeParam::value, arena)->multiply(x, Finish::kNone), expected));
}

std::shared_ptr<const PackedWeights> packed_int8(const at::Tensor& weight, Instructions set = cpu_instructions()) {
  WeightArena arena;
  return packed_weights(weight, {}, at::kChar, arena, set);
}

// Sums of 16 bits would overflow where all bytes are the largest ones.
TEST(Int8Matrix, AddsTheLargestBytesExactly) {
  for (const Instructions set : available_instructions()) {
    for (const double sign : {1.0, -1.0}) {
      const at::Tensor y =
          packed_int8(at::full({65, 512}, sign * 127), set)->multiply(at::full({7, 512}, 127.0), Finish::kNone);
      EXPECT_TRUE(at::equal(y, at::full({7, 65}, sign * 127 * 127 * 512))) << to_string(set);
    }
  }
}

TEST(Int8Matrix, ManyRowsAreThoseOfFew) {
  const at::Tensor x = random_tensor({2500, 40}, 3), weight = random_tensor({33, 40}, 4);
  for (const Instructions set : available_instructions()) {
    const auto matrix = packed_int8(weight, set);
    const at::Tensor whole = matrix->multiply(x, Finish::kNone);
    for (const int64_t first : {0, 1000, 1020, 2490}) {
      EXPECT_TRUE(at::equal(whole.narrow(0, first, 10), matrix->multiply(x.narrow(0, first, 10), Finish::kNone)));
    }
  }
}

TEST(Int8Matrix, TakesExtremeNumbersAndRefusesWeightsThatAreNone) {
  at::Tensor weight = random_tensor({3, 8}, 11);
  for (const double size : {0.0, 1e-44, 1e-38, 1e33}) {
    const at::Tensor x = at::full({1, 8}, size, at::kFloat);
    EXPECT_TRUE(packed_int8(weight)->multiply(x, Finish::kNone).isfinite().all().item<bool>()) << size;
    const at::Tensor tiny = packed_int8(weight * size)->multiply(at::ones({1, 8}), Finish::kNone);
    EXPECT_TRUE(tiny.isfinite().all().item<bool>()) << size;
  }
  weight[2][7] = kNotANumber;
  EXPECT_NE(error_of<RunError>([&] { packed_int8(weight); }).find("not finite"), std::string::npos);
}

}  // namespace
}  // namespace draftsmith::model
