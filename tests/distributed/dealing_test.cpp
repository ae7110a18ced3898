#include "distributed/dealing.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <limits>
#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/signals.h"
#include "tests/support/worlds.h"

namespace draftsmith {
namespace {

using testing_support::run_in_world;

class DealingIn : public testing::TestWithParam<int> {};

TEST_P(DealingIn, GathersThePartsByRank) {
  run_in_world(GetParam(), [](World& world) {
    const auto parts = gather_parts(world, "a test", [&] { return nlohmann::json{{"rank", world.rank()}}; });
    ASSERT_EQ(std::ssize(parts), world.size());
    for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].at("rank"), i);
  });
}

TEST_P(DealingIn, GivesEachPieceToOneProcess) {
  std::mutex mutex;
  std::multiset<int64_t> done;
  run_in_world(GetParam(), [&](World& world) {
    for (const int64_t count : {10, 0, 3}) {
      std::vector<int64_t> own;
      const auto taken = deal_out(world, "pieces", count, [&](int64_t number) {
        own.push_back(number);
        const std::lock_guard lock(mutex);
        done.insert(100 * count + number);
      });
      EXPECT_EQ(taken, own);
      EXPECT_TRUE(std::ranges::is_sorted(taken));
    }
  });
  std::multiset<int64_t> expected;
  for (const int64_t count : {10, 3}) {
    for (int64_t number = 0; number < count; ++number) expected.insert(100 * count + number);
  }
  EXPECT_EQ(done, expected);
}

TEST_P(DealingIn, WorksOnTheLeaderWhileTheOthersWait) {
  std::atomic<int> worked{0};
  run_in_world(GetParam(), [&](World& world) {
    run_on_leader(world, "a test", [&] {
      EXPECT_TRUE(world.leads());
      ++worked;
    });
    EXPECT_EQ(worked, 1);
  });
}

TEST_P(DealingIn, StopsAllWhereOneIsStopped) {
  const SignalWatch signals;
  std::atomic<int> stopped{0};
  run_in_world(GetParam(), [&](World& world) {
    try {
      run_on_leader(world, "a test", [] {
        request_stop(SIGTERM);
        throw_if_stop_requested("the work is kept");
      });
    } catch (const Interrupted& stop) {
      EXPECT_EQ(stop.problems().front().hint, "the work is kept");
      ++stopped;
    }
  });
  EXPECT_EQ(stopped, GetParam());
}

TEST_P(DealingIn, ShowsThePiecesOfAllOnTheLeader) {
  run_in_world(GetParam(), [](World& world) {
    std::string shown;
    Progress progress(
        {.style = ProgressStyle::kLines, .title = "work", .unit = "pieces", .total = 60},
        [] { return Progress::Clock::time_point(); }, [&](const std::string& line) { shown = line; });
    SharedProgress shared(world, "work", {10, 20, 30}, progress);
    deal_out(world, "work", 3, [&](int64_t) { shared.finished_one(); });
    shared.finished_all();
    progress.finish();
    EXPECT_THAT(shown, testing::HasSubstr("60"));
  });
}

INSTANTIATE_TEST_SUITE_P(Processes, DealingIn, testing::Values(1, 2, 3));

TEST(Dealing, NumbersSurviveAsTexts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {0.1, 1.0 / 3, -1e-300, 1e300, 5e-324, kInfinity, -kInfinity}) {
    EXPECT_EQ(exact_number(nlohmann::json(exact_text(number))), number);
  }
  EXPECT_TRUE(std::isnan(exact_number(nlohmann::json(exact_text(std::nan(""))))));
}

}  // namespace
}  // namespace draftsmith
