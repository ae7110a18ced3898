// Other processes on the machine: their load, what it does to rows, and waiting for its end.
#include "evaluate/measure/machine_load.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/signals.h"
#include "tests/evaluate/made_results.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

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
  std::optional<double> wait(double minutes, std::vector<double> shares) {
    const auto share = [&] { return shares[std::min(static_cast<size_t>(times_.wall / 5), shares.size() - 1)]; };
    Progress progress(
        {.style = ProgressStyle::kLines, .title = "waiting", .unit = "s", .total = 60},
        [&] { return Progress::Clock::time_point(now_); }, [&](const std::string& line) { printed_ += line; });
    const MachineWatch machine{.times = [&] { return times_; },
                               .sleep =
                                   [&](double seconds) {
                                     times_.busy += share() * seconds * static_cast<double>(cpu_cores());
                                     times_.wall += seconds;
                                     now_ += std::chrono::milliseconds(static_cast<int>(1000 * seconds));
                                   }};
    return wait_for_idle(minutes, machine, progress);
  }

  ProcessorTimes times_;
  std::chrono::milliseconds now_{};
  std::string printed_;
};

TEST_F(WaitingForIdle, EndsWhenOthersAreDone) {
  EXPECT_NEAR(wait(10, {0.8, 0.5, 0.3, 0.02}).value(), 0.02, 1e-9);
  EXPECT_EQ(times_.wall, 20);
  EXPECT_THAT(printed_, HasSubstr("waiting  16% 10/60 s, 50s left, others use 80 % of the processors\n"));
}

TEST_F(WaitingForIdle, EndsAfterItsMinutes) {
  EXPECT_NEAR(wait(0.25, {0.5}).value(), 0.5, 1e-9);
  EXPECT_EQ(times_.wall, 15);
}

TEST_F(WaitingForIdle, EndsAtOnceWhereTheSystemDoesNotTell) {
  Progress progress(ProgressOptions{});
  const MachineWatch machine{.times = [] { return std::optional<ProcessorTimes>(); }, .sleep = [](double) {}};
  EXPECT_EQ(wait_for_idle(5, machine, progress), std::nullopt);
}

TEST_F(WaitingForIdle, EndsWithAStop) {
  const SignalWatch watch;
  request_stop(SIGINT);
  EXPECT_THROW(wait(10, {0.8}), Interrupted);
  EXPECT_EQ(times_.wall, 0);
}

}  // namespace
}  // namespace draftsmith::evaluate
