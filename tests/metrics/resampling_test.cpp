// Intervals and paired tests against statistics whose answer is known.

#include "metrics/resampling.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace draftsmith::metrics {
namespace {

double mean_of(std::span<const double> sums) {
  return sums[1] == 0 ? 0 : sums[0] / sums[1];
}

// `lines` normal values with the given mean and standard deviation 1, as (value, 1).
LineStatistics normal_values(int64_t lines, double mean, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, 1);
  LineStatistics statistics{.width = 2, .values = {}};
  for (int64_t i = 0; i < lines; ++i) statistics.values.insert(statistics.values.end(), {normal(engine), 1.0});
  return statistics;
}

TEST(Bootstrap, IntervalOfAMeanIsAsWideAsTheNormalOne) {
  const auto statistics = normal_values(1000, 0, 7);
  const Interval interval = bootstrap_interval(statistics, mean_of, {.resamples = 4000});
  EXPECT_NEAR(interval.high - interval.low, 2 * 1.96 / std::sqrt(1000.0), 0.01);
  const double mean = mean_of(statistics.sum());
  EXPECT_LT(interval.low, mean);
  EXPECT_GT(interval.high, mean);
}

TEST(Bootstrap, SameSeedSameInterval) {
  const auto statistics = normal_values(100, 0, 7);
  const Interval a = bootstrap_interval(statistics, mean_of), b = bootstrap_interval(statistics, mean_of);
  const Interval c = bootstrap_interval(statistics, mean_of, {.seed = 2});
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_NE(a.low, c.low);
}

TEST(Bootstrap, PercentilesInterpolateLinearly) {
  std::vector<double> values{4, 0, 2, 1, 3};
  const Interval interval = percentile_interval(values, 0.5);
  EXPECT_DOUBLE_EQ(interval.low, 1);
  EXPECT_DOUBLE_EQ(interval.high, 3);
}

// False alarms: with equal systems p is uniform, so 60 pairs fall below .05 about 3 times, above 12 with probability
// 1e-5.
int rejections(double shift) {
  int rejected = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto a = normal_values(200, shift, 2 * seed);
    const auto b = normal_values(200, 0, 2 * seed + 1);
    if (paired_bootstrap(a, b, mean_of, {.resamples = 300}).p_value < 0.05) ++rejected;
  }
  return rejected;
}

TEST(PairedBootstrap, FindsARealDifferenceAndKeepsItsFalseAlarmRate) {
  EXPECT_LT(rejections(0), 12);
  EXPECT_GT(rejections(0.5), 55);
}

TEST(PairedTests, IdenticalSystemsAndOneLineHavePValueOne) {
  const auto a = normal_values(50, 1, 3);
  EXPECT_DOUBLE_EQ(paired_bootstrap(a, a, mean_of).p_value, 1);
  EXPECT_DOUBLE_EQ(paired_bootstrap(a, a, mean_of).difference, 0);
  const PairedTest test = paired_bootstrap(normal_values(1, 5, 3), normal_values(1, 0, 4), mean_of);
  EXPECT_DOUBLE_EQ(test.p_value, 1);
  EXPECT_TRUE(std::isnan(test.difference_interval.low));
  EXPECT_TRUE(std::isnan(bootstrap_interval(normal_values(1, 5, 3), mean_of).high));
}

}  // namespace
}  // namespace draftsmith::metrics
