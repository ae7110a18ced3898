// The machine, and use of its processors.
#include "base/environment.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(Environment, NamesBuildAndMachine) {
  EXPECT_THAT(version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(git_commit(), testing::MatchesRegex("unknown|[0-9a-f]+[+]?"));
  EXPECT_THAT(now_utc(), testing::MatchesRegex("20[0-9-]+T[0-9:]+Z"));
  EXPECT_GE(cpu_cores(), 1);
}

TEST(ProcessorUse, CountsTheGivenProcessorsBusyTimes) {
  const std::string stat =
      "cpu  600 60 66 5000 500 6 6 6 0 0\ncpu0 100 10 11 1000 100 1 2 3 50 0\ncpu1 200 20 22 2000 200 2 2 2 0 0\n"
      "cpu11 300 30 33 2000 200 3 2 1 0 0\nintr 5 5\n";
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {0}, 100), 1.27);
  EXPECT_DOUBLE_EQ(busy_seconds(stat, {1, 0}, 100), 3.75);
  const std::optional<ProcessorTimes> times = processor_times();
  EXPECT_TRUE(!times || (times->wall > 0 && times->busy > 0 && times->own > 0));
}

}  // namespace
}  // namespace draftsmith
