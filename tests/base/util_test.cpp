// Quantiles, and the exponential of vectorised loops against the library's.
#include "base/util.h"

#include <limits>

#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(Statistics, QuantileIsTheSmallestValueThatCoversTheShare) {
  const std::vector<double> ten = {7, 3, 9, 1, 10, 5, 2, 8, 6, 4};
  EXPECT_EQ(quantile(ten, 0), 1);
  EXPECT_EQ(quantile(ten, 0.1), 1);
  EXPECT_EQ(quantile(ten, 0.11), 2);
  EXPECT_EQ(quantile(ten, 0.5), 5);
  EXPECT_EQ(quantile(ten, 0.9), 9);
  EXPECT_EQ(quantile(ten, 1), 10);
  EXPECT_EQ(quantile({4}, 0.9), 4);
}

TEST(Statistics, SpreadLeavesOutATenthAtEachEnd) {
  std::vector<double> values{1e9, -1e9};  // outliers
  for (int i = 1; i <= 18; ++i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.median, 10);
  EXPECT_EQ(spread.high, 17);
  EXPECT_EQ(spread_of({3}).low, 3);
  EXPECT_EQ(spread_of({3}).high, 3);
}

TEST(VectorMath, ExponentialFollowsTheLibraryBelowZero) {
  for (float x = -86.9F; x <= 0; x += 0.0371F) {
    EXPECT_NEAR(exponential(x) / std::exp(x), 1.0F, 4e-7F) << x;
  }
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-87.5F), 0.0F);
  EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0F);
}

// A conversion of NaN to an integer is undefined; the sanitizer's build finds it here.
TEST(VectorMath, ExponentialOfNanIsNan) {
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(exponential(nan)));
  }
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace draftsmith
