#include "evaluate/measure/speed.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/evaluate/measure/timed_line.h"

namespace draftsmith::evaluate {
namespace {

double width(const Ratio& ratio) {
  return ratio.interval.high - ratio.interval.low;
}

bool covers(const Ratio& ratio, double value) {
  return ratio.interval.low <= value && value <= ratio.interval.high;
}

TEST(Speed, RatesArePooledOverLinesAtTheirMedians) {
  const SettingRecords baseline{timed(10, {1, 100, 2}, 10), timed(10, {5}, 10)};
  const SettingRecords run{timed(10, {0.5}, 4), timed(5, {2}, 2)};
  const Speed speed = measure_speed(run, baseline, {.resamples = 100});
  EXPECT_DOUBLE_EQ(speed.speedup.value, (15 / 4.5) / (20 / 9.0));
  EXPECT_DOUBLE_EQ(speed.speedup_total.value, 9.0 / 4.5);
  EXPECT_DOUBLE_EQ(speed.speedup_decode.value, (7.0 / 20) / (2.5 / 15));
  EXPECT_DOUBLE_EQ(speed.length_ratio.value(), 0.75);
  EXPECT_TRUE(speed.lengths_differ());
  EXPECT_EQ(speed.tokens, 15);
  EXPECT_DOUBLE_EQ(speed.tokens_per_second, 15 / 4.5);
  EXPECT_DOUBLE_EQ(decode_bound(run, baseline), 15.0 / 6);
}

TEST(Speed, LinesThatWereNotTimedDoNotCount) {
  const SettingRecords baseline{timed(10, {1}, 10), timed(10, {}, 10)};
  const Speed speed = measure_speed(baseline, baseline, {.resamples = 10});
  EXPECT_EQ(speed.lines, 1);
  EXPECT_EQ(speed.tokens, 10);
}

TEST(Speed, CountsBesideItAreThoseOfTheTimedLines) {
  SettingRecords run{timed(10, {1}, 4), timed(20, {}, 9), timed(30, {2}, 7)};
  run.front().prefill_runs = 1;
  const infer::DecodeStats counts = timed_counts(run);
  EXPECT_EQ(counts.emitted, 40);
  EXPECT_EQ(counts.target_runs, 10);
}

TEST(Speed, ABaselineBesideItselfReadsExactlyOne) {
  SettingRecords baseline;
  for (int64_t line = 0; line < 30; ++line) {
    const auto tokens = static_cast<double>(5 + line);
    baseline.push_back(timed(5 + line, {tokens, 1.3 * tokens, 0.8 * tokens}, 5 + line));
    baseline.back().turn = line / 4;
  }
  const Speed speed = measure_speed(baseline, baseline, {.resamples = 200});
  EXPECT_DOUBLE_EQ(speed.speedup.value, 1);
  EXPECT_NEAR(width(speed.speedup), 0, 1e-12);
}

// A mean of the lines' ratios of times reads 3.4 here: lengths are geometric, and E[X/Y] exceeds E[X]/E[Y].
TEST(Speed, EqualSamplersOfRandomLengthsReadOne) {
  const CounterRandom random(3, "lengths");
  const auto draw = [&](uint64_t index) {
    int64_t tokens = 1;
    while (tokens < 96 && random.uniform(100 * index + static_cast<uint64_t>(tokens)) > 0.02) ++tokens;
    return timed(tokens, {0.01 * static_cast<double>(tokens) - 1}, tokens);  // timed() adds a second of the encoder
  };
  SettingRecords one;
  SettingRecords other;
  for (uint64_t line = 0; line < 2000; ++line) {
    one.push_back(draw(2 * line));
    other.push_back(draw(2 * line + 1));
  }
  const Speed speed = measure_speed(one, other, {.resamples = 200});
  EXPECT_NEAR(speed.speedup.value, 1, 1e-9);
  EXPECT_TRUE(covers(speed.speedup, 1));
}

// Records whose turns of ten lines are slow or fast as a whole, anew in each repetition.
SettingRecords disturbed(const char* stream, int64_t lines, int64_t repetitions) {
  const CounterRandom random(5, stream);
  SettingRecords records;
  for (int64_t line = 0; line < lines; ++line) {
    std::vector<double> seconds;
    for (int64_t r = 0; r < repetitions; ++r) {
      seconds.push_back(4 * std::exp(0.1 * random.normal(static_cast<uint64_t>(line / 10 * repetitions + r))) - 1);
    }
    records.push_back(timed(40, seconds, 40));
    records.back().turn = line / 10;
  }
  return records;
}

TEST(Speed, IntervalsHoldWhatVariesBetweenTurns) {
  for (const int64_t repetitions : {1, 3}) {
    const SettingRecords run = disturbed("run", 100, repetitions);
    const SettingRecords baseline = disturbed("baseline", 100, repetitions);
    const Speed speed = measure_speed(run, baseline, {.resamples = 1000});
    EXPECT_TRUE(covers(speed.speedup, 1)) << repetitions;
    // Ten turns of 10 % each, twice: the logarithm deviates by .1 sqrt(2 / 10), by .67 of that at a median of three.
    const double expected = 2 * 1.96 * 0.1 * std::sqrt(0.2) * (repetitions == 1 ? 1 : 0.67);
    EXPECT_GT(width(speed.speedup), 0.6 * expected) << repetitions;
    EXPECT_LT(width(speed.speedup), 1.7 * expected) << repetitions;
  }
}

TEST(Speed, APrefillThatEmitsATokenIsNoDecodingStep) {
  SettingRecords baseline{timed(10, {1}, 10)};
  SettingRecords run{timed(10, {1}, 4)};
  baseline[0].prefill_runs = run[0].prefill_runs = 1;
  EXPECT_DOUBLE_EQ(decode_bound(run, baseline), (10.0 / 3) / (10.0 / 9));
}

}  // namespace
}  // namespace draftsmith::evaluate
