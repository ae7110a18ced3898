// Other processes on the machine: their load, what it does to rows, and waiting for its end.
#include "evaluate/measure/machine_load.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/signals.h"
#include "base/timing.h"
#include "tests/evaluate/made_results.h"

namespace draftsmith::evaluate {
namespace {

TEST(OtherLoad, IsWhatThisProcessDidNotUse) {
  const auto cores = static_cast<double>(cpu_cores());
  const ProcessorTimes before{.wall = 10, .busy = 5, .own = 3};
  const ProcessorTimes now{.wall = 20, .busy = 5 + 6 * cores, .own = 3 + 2 * cores};
  EXPECT_NEAR(other_load(before, now).value(), 0.4, 1e-12);
  EXPECT_EQ(other_load(before, before), std::nullopt);
  EXPECT_EQ(other_load(std::nullopt, now), std::nullopt);
}

TEST(Slowdown, IsMedianOverFastestRepetitions) {
  const SettingRecords records{timed(4, {1, 2, 5}, 4), timed(4, {0, 1, 1}, 4), timed(4, {9}, 4), timed(4, {}, 4)};
  EXPECT_NEAR(slowdown(records).value(), (3.0 + 2.0) / (2.0 + 1.0), 1e-12);
  EXPECT_EQ(slowdown({timed(4, {9}, 4)}), std::nullopt);
}

// A machine whose others use these shares of it, each for five seconds, and the last one from then on.
class WaitingForIdle : public testing::Test {
 protected:
  std::optional<double> wait(int minutes, const std::vector<double>& shares) {
    return wait_for_idle(minutes, [&](double seconds) {
      const size_t at = std::min(static_cast<size_t>(times_.wall / 5), shares.size() - 1);
      times_.busy += shares[at] * seconds * static_cast<double>(cpu_cores());
      times_.wall += seconds;
      return times_;
    });
  }

  ProcessorTimes times_;
};

TEST_F(WaitingForIdle, EndsWhenOthersAreDone) {
  EXPECT_NEAR(wait(10, {0.8, 0.5, 0.3, 0.02}).value(), 0.02, 1e-9);
  EXPECT_EQ(times_.wall, 20);
}

TEST_F(WaitingForIdle, EndsAfterItsMinutes) {
  EXPECT_NEAR(wait(1, {0.5}).value(), 0.5, 1e-9);
  EXPECT_EQ(times_.wall, 60);
}

TEST_F(WaitingForIdle, EndsAtOnceWhereTheSystemDoesNotTell) {
  int reads = 0;
  const auto unknown = [&](double) {
    ++reads;
    return std::optional<ProcessorTimes>();
  };
  EXPECT_EQ(wait_for_idle(5, unknown), std::nullopt);
  EXPECT_EQ(reads, 1);
}

TEST_F(WaitingForIdle, EndsWithAStop) {
  const SignalWatch watch;
  request_stop(SIGINT);
  const Stopwatch stopwatch;
  EXPECT_THROW(wait_for_idle(10), Interrupted);
  EXPECT_LT(stopwatch.seconds(), 2);
}

}  // namespace
}  // namespace draftsmith::evaluate
