// Other processes on the machine: their load, and what it does to rows.
#include "evaluate/measure/machine_load.h"

#include <optional>

#include <gtest/gtest.h>

#include "base/environment.h"
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

}  // namespace
}  // namespace draftsmith::evaluate
