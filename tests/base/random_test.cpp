#include "base/random.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace draftsmith {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Chi-square of 100,000 draws in 100 cells: 99 degrees of freedom, standard deviation 14; 99 + 6 * 14 is far beyond the
// 1e-6 quantile, and a bias of 5 % in one tenth of the cells would exceed it.
void expect_uniform(const std::vector<int>& counts, int draws) {
  const double expected = static_cast<double>(draws) / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 183);
  EXPECT_GT(chi_square, 40);
}

TEST(CounterRandom, UniformNumbersAreUniform) {
  constexpr int kDraws = 100'000;
  const CounterRandom random(17, "uniform");
  std::vector<int> doubles(100), integers(100);
  for (int i = 0; i < kDraws; ++i) {
    const auto counter = static_cast<uint64_t>(i);
    const double u = random.uniform(counter);
    ASSERT_TRUE(u >= 0 && u < 1);
    ++doubles[static_cast<size_t>(u * 100)];
    ++integers[random.below(counter, 100)];
  }
  expect_uniform(doubles, kDraws);
  expect_uniform(integers, kDraws);
}

TEST(CounterRandom, NormalNumbersHaveTheirMoments) {
  constexpr int kDraws = 200'000;
  const CounterRandom random(5, "normal");
  double sum = 0, squares = 0, fourths = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal(static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x, squares += x * x, fourths += x * x * x * x;
  }
  // Six standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kDraws, 0, 6 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 6 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourths / kDraws, 3, 6 * std::sqrt(96.0 / kDraws));
}

TEST(RandomSequence, ResumesFromItsPosition) {
  RandomSequence whole{CounterRandom(9, "s")};
  for (int i = 0; i < 10; ++i) whole.uniform();
  RandomSequence resumed{CounterRandom(9, "s"), whole.position};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(whole.below(1000), resumed.below(1000));
}

}  // namespace
}  // namespace draftsmith
