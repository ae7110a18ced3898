// Records of lines, and the speeds, latencies and step times that are computed from them.
#include "evaluate/measure/speed.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/random.h"
#include "evaluate/measure/measured_task.h"
#include "evaluate/measure/measurement_store.h"
#include "tests/evaluate/made_results.h"

namespace draftsmith::evaluate {
namespace {

TEST(Speed, RatesArePooledOverLines) {
  const SettingRecords baseline{timed(10, {2}, 10), timed(10, {5}, 10)};
  const SettingRecords run{timed(10, {0.5}, 4), timed(5, {2}, 2)};
  const Speed speed = measure_speed(run, baseline);
  EXPECT_DOUBLE_EQ(speed.speedup.value, (15 / 4.5) / (20 / 9.0));
  EXPECT_DOUBLE_EQ(speed.speedup_total.value, 9.0 / 4.5);
  EXPECT_DOUBLE_EQ(speed.speedup_decode.value, (7.0 / 20) / (2.5 / 15));
  EXPECT_EQ(speed.tokens, 15);
  EXPECT_DOUBLE_EQ(speed.tokens_per_second, 15 / 4.5);
}

// Returns lines whose pairs of timings have these seconds, encoders left out.
SettingRecords paired(const std::vector<std::vector<std::pair<double, double>>>& lines) {
  SettingRecords run;
  for (const auto& pairs : lines) {
    LineRecord& line = run.emplace_back(timed(10, {}, 10));
    for (const auto& [own, base] : pairs) {
      line.repetitions.push_back({.verify = own});
      line.baseline.push_back({.verify = base});
    }
  }
  return run;
}

TEST(Speed, APaceThatBothSidesOfAPairShareCancels) {
  const SettingRecords run = paired({{{1, 2}, {1.5, 3}, {0.7, 1.4}}, {{2, 4}, {2.2, 4.4}, {5, 10}}});
  const Ratio speedup = measure_speed(run, run).speedup;
  EXPECT_NEAR(speedup.value, 2, 1e-12);
  EXPECT_NEAR(speedup.interval.low, 2, 1e-9);
  EXPECT_NEAR(speedup.interval.high, 2, 1e-9);
}

TEST(Speed, PairsWithAStopAreLeftOutAndBothSidesAreTreatedAlike) {
  std::vector<std::vector<std::pair<double, double>>> lines, swapped;
  for (int i = 0; i < 30; ++i) {
    const double noise = 0.01 * (i % 5);
    lines.push_back({{1, 2 + noise}, {1 + noise / 2, 2}, {1.5, 3}});
    if (i == 7) lines.back()[1].first = 80;   // a stop in the setting's timing
    if (i == 9) lines.back()[2].second = 50;  // and in its baseline's
    swapped.emplace_back();
    for (const auto& [own, base] : lines.back()) swapped.back().emplace_back(base, own);
  }
  SettingRecords run = paired(lines);
  const SettingRecords other = paired(swapped);
  for (size_t i = 0; i < run.size(); ++i) run[i].turn = static_cast<int64_t>(i);
  const Ratio speedup = measure_speed(run, run).speedup;
  EXPECT_NEAR(speedup.value, 2, 0.005);
  EXPECT_LT(speedup.interval.high - speedup.interval.low, 0.02);
  EXPECT_NEAR(measure_speed(other, other).speedup.value, 1 / speedup.value, 1e-12);
}

TEST(Speed, OfTheSameLinesTwiceHasOnlyTheMachinesError) {
  SettingRecords first, second;
  for (int i = 0; i < 20; ++i) {
    const double ratio = 1 + 0.1 * (i % 7);
    first.push_back(paired({{{1, ratio}, {1, ratio * 1.01}}}).front());
    second.push_back(paired({{{2, 2.2 * ratio}, {2, 2.2 * ratio * 0.99}}}).front());
    first.back().turn = second.back().turn = i;
  }
  const PairedRatio a = paired_speedup(first, first), b = paired_speedup(second, second);
  const Ratio change = (b / a).ratio();
  EXPECT_NEAR(change.value, 1.1 * 0.99, 0.003);
  EXPECT_LT(change.interval.high - change.interval.low, 0.02);
  EXPECT_GT(a.ratio().interval.high - a.ratio().interval.low, 0.1);
}

// A pace that one round has on all lines, and another has not: the speedup of other minutes differs by it.
TEST(Speed, IntervalsHoldPacesOfWholeRounds) {
  constexpr int kEvaluations = 300;
  int held = 0;
  for (uint64_t seed = 0; seed < kEvaluations; ++seed) {
    RandomSequence random{CounterRandom(seed, "rounds")};
    std::vector<std::vector<std::pair<double, double>>> lines(100);
    for (int round = 0; round < 6; ++round) {
      const double pace = 0.05 * random.normal();
      for (auto& line : lines) line.emplace_back(1, std::exp(pace + 0.02 * random.normal()));
    }
    SettingRecords run = paired(lines);
    for (size_t i = 0; i < run.size(); ++i) run[i].turn = static_cast<int64_t>(i / 4);
    const Speed speed = measure_speed(run, run);
    const auto [low, high] = speed.speedup.interval;
    if (low <= 1 && 1 <= high) ++held;
    EXPECT_GE(speed.speedup_error.machine, 0.95 * (high - low) / 2);
  }
  EXPECT_GE(held, 0.92 * kEvaluations);
  EXPECT_LE(held, 0.98 * kEvaluations);
}

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
  back.add_times(line.times_json());
  EXPECT_DOUBLE_EQ(back.latency(), 20);
}

TEST(Latency, IsUnknownWhereNothingWasTimedOrPutOut) {
  EXPECT_TRUE(std::isnan(measure_latency({}).sentence_ms.p50));
  const Latency empty = measure_latency({timed(0, {1}, 1)});
  EXPECT_DOUBLE_EQ(empty.sentence_ms.p50, 2000);
  EXPECT_TRUE(std::isnan(empty.token_ms.p50));
}

TEST(EvaluationRecords, OverheadOfABatchIsCountedOnceHoweverUnequalItsLines) {
  SettingRecords batch{timed(2, {0}, 2), timed(10, {2}, 10)};  // encode takes 1 each: 4 s in the phases
  add_overhead(batch, 4.5);
  EXPECT_DOUBLE_EQ(batch[0].repetitions[0].other, 0.25);
  EXPECT_DOUBLE_EQ(batch[1].repetitions[0].total(), 3.25);
  add_overhead(batch, 4.0);  // clocks differ: never less than the phases
  EXPECT_DOUBLE_EQ(batch[0].repetitions[0].other, 0.25);
}

TEST(EvaluationRecords, ComeBackFromJsonAsTheyWere) {
  LineRecord record = timed(3, {0.1, 0.2}, 2);
  const infer::StepCounts target{1.5, 2, 3, 4, 5, 6, 0, 8, 9}, draft{2.5, 3, 4, 5, 6, 7, 0, 9, 10};
  record.stats = {1,    2,  3,    4,  5,  6,  7,  8,   9,  10,     11,    {12}, {13},
                  {14}, 15, {16}, 17, 18, 19, 20, 2.5, 22, target, draft, {}};
  record.prefill_runs = 1;
  record.turn = 4;
  record.timed_again = 1;
  LineRecord back = LineRecord::from_counts(nlohmann::json::parse(record.counts_json().dump()));
  EXPECT_TRUE(back.stats == record.stats);
  EXPECT_EQ(back.counts_json(), record.counts_json());
  EXPECT_TRUE(back.repetitions.empty());
  record.baseline = {{.verify = 0.4}, {.verify = 0.5}};
  back.add_times(nlohmann::json::parse(record.times_json().dump()));
  EXPECT_EQ(back.times_json(), record.times_json());
  EXPECT_EQ(back.turn, 4);
  EXPECT_EQ(back.ids, record.ids);
  EXPECT_DOUBLE_EQ(back.repetitions.at(1).verify, 0.2);
}

TEST(TypicalLines, HaveTheLengthsOfTheQuartiles) {
  SettingRecords records;
  for (const size_t length : {8, 1, 7, 2, 6, 3, 5, 4}) records.emplace_back().ids.assign(length, 5);
  EXPECT_THAT(typical_lines(records), testing::ElementsAre(5, 6, 2));
}

// A setting with a longer window may fail between two measurements.
TEST(TypicalLines, CostsAreMediansOfEachTime) {
  const std::vector<infer::StepCosts> measured{{.target = {1, 9, 3}, .draft = 0.2, .drafts = {.3, .5}},
                                               {.target = {3, 2, 2}, .draft = 0.3, .drafts = {.4, .9}},
                                               {.target = {2, 4, 1, 8}, .draft = 0.1, .drafts = {.2, .6, .9}}};
  const infer::StepCosts costs = median_costs(measured);
  EXPECT_THAT(costs.target, testing::ElementsAre(2, 4, 2));
  EXPECT_EQ(costs.draft, 0.2);
  EXPECT_THAT(costs.drafts, testing::ElementsAre(.3, .6));
}

}  // namespace
}  // namespace draftsmith::evaluate
