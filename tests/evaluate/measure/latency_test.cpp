// Latencies of lines and their percentiles.
#include <cmath>

#include <gtest/gtest.h>

#include "evaluate/measure/speed.h"
#include "tests/evaluate/measure/timed_line.h"

namespace draftsmith::evaluate {
namespace {

TEST(Latency, PercentilesLieBetweenNeighbouringLines) {
  SettingRecords run;
  for (int i = 100; i >= 0; --i) run.push_back(timed(10, {0.001 * i}, 10));  // encode takes 1 s
  run.push_back(timed(5, {}, 5));                                            // not timed
  const Latency latency = measure_latency(run);
  EXPECT_NEAR(latency.sentence_ms.p50, 1050, 1e-9);
  EXPECT_NEAR(latency.sentence_ms.p95, 1095, 1e-9);
  EXPECT_NEAR(latency.sentence_ms.p99, 1099, 1e-9);
  EXPECT_NEAR(latency.token_ms.p95, 109.5, 1e-9);
}

TEST(Latency, ASentenceWaitsForItsBatch) {
  SettingRecords batch{timed(2, {0}, 2), timed(10, {2}, 10)};
  add_overhead(batch, 4.5);
  EXPECT_DOUBLE_EQ(batch[0].latency(), 4.5);
  EXPECT_DOUBLE_EQ(measure_latency(batch).sentence_ms.p99, 4500);
  EXPECT_DOUBLE_EQ(measure_latency({batch[0]}).token_ms.p50, 2250);
}

TEST(Latency, IsThatOfTheMedianRepetitionAndOfOneSample) {
  LineRecord line = timed(12, {3, 1, 2}, 12);
  line.latencies = {30, 10, 20};
  line.first_tokens = {7, 7, 7};
  EXPECT_DOUBLE_EQ(line.latency(), 20);
  EXPECT_DOUBLE_EQ(measure_latency({line}).token_ms.p50, 5000);
  LineRecord back = timed(12, {}, 12);
  back.set_times(line.times_json());
  EXPECT_DOUBLE_EQ(back.latency(), 20);
}

TEST(Latency, IsUnknownWhereNothingWasTimedOrPutOut) {
  EXPECT_TRUE(std::isnan(measure_latency({}).sentence_ms.p50));
  const Latency empty = measure_latency({timed(0, {1}, 1)});
  EXPECT_DOUBLE_EQ(empty.sentence_ms.p50, 2000);
  EXPECT_TRUE(std::isnan(empty.token_ms.p50));
}

}  // namespace
}  // namespace draftsmith::evaluate
