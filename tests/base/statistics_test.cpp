#include <gtest/gtest.h>

#include "base/util.h"

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

}  // namespace
}  // namespace draftsmith
