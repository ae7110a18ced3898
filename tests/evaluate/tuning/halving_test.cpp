// Which settings go on from rung to rung, and which one wins.
#include "evaluate/tuning/halving.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith::evaluate {
namespace {

using testing::ElementsAre;

TEST(Rungs, HaveLinesForAThirdOfTheSettingsEach) {
  EXPECT_THAT(rung_lines(27, 900, 3, 16), ElementsAre(100, 300, 900));
  EXPECT_THAT(rung_lines(9, 900, 3, 16), ElementsAre(300, 900));
  EXPECT_THAT(rung_lines(3, 900, 3, 16), ElementsAre(900));
  EXPECT_THAT(rung_lines(27, 60, 3, 16), ElementsAre(20, 60));  // no rung of 6 lines
  EXPECT_THAT(rung_lines(1000, 10, 3, 16), ElementsAre(10));
  EXPECT_THAT(rung_lines(8, 80, 2, 1), ElementsAre(20, 40, 80));
  EXPECT_THROW(rung_lines(8, 80, 1, 1), std::invalid_argument);
}

TEST(Halving, KeepsTheWinnerTheSafestAndTheMostHopeful) {
  const std::vector<Contender> all{
      {"fast, bad", 9, 3, 2}, {"fast, perhaps", 8, 1, 0.2}, {"slow, good", 2, 0, -1}, {"medium", 5, 0.4, 0}};
  EXPECT_THAT(kept(all, 0.5, 3), ElementsAre("medium", "slow, good", "fast, perhaps"));
  EXPECT_THAT(kept(all, 5, 2), ElementsAre("fast, bad", "slow, good"));
  EXPECT_THAT(kept(all, 0.5, 9), ElementsAre("medium", "slow, good", "fast, perhaps", "fast, bad"));
  EXPECT_THAT(kept({}, 0.5, 2), ElementsAre());
}

// On few lines many bad settings may be within the budget: they do not displace the ones that are.
TEST(Halving, WideIntervalsDoNotDisplaceTheWinner) {
  std::vector<Contender> all{{"good", 5, 0, -1}};
  for (int i = 0; i < 9; ++i) all.push_back({"fast " + std::to_string(i), 10.0 + i, 8, -5});
  EXPECT_THAT(kept(all, 1, 4), ElementsAre("good", "fast 8", "fast 0", "fast 7"));
}

TEST(Halving, TheWinnerIsTheFastestWithinTheBudgetOrTheBest) {
  const std::vector<Contender> all{{"fast, bad", 9, 3, 2}, {"medium", 5, 0.4, 0}, {"slow, good", 2, 0, -1}};
  EXPECT_EQ(winner(all, 0.5), 1u);
  EXPECT_EQ(winner(all, 3), 0u);
  EXPECT_EQ(winner(all, 0), 2u);
  EXPECT_EQ(winner(all, -1), 2u);
  EXPECT_THROW(winner({}, 1), std::logic_error);
}

TEST(TheoryInHalving, RulesOutByAWideMarginAlone) {
  const std::vector<Prospect> all{{"fast", 2}, {"near", 1.6}, {"slow", 1.4}, {"slowest", 0.5}, {"medium", 1.5}};
  EXPECT_THAT(ruled_out(all, 2), ElementsAre("slow", "slowest"));
  EXPECT_THAT(ruled_out(all, 4), ElementsAre("slowest"));
  EXPECT_THAT(ruled_out(all, 9), ElementsAre());
  EXPECT_THAT(ruled_out({}, 2), ElementsAre());
}

TEST(TheoryInHalving, ErrorsThatMakeUpForTheDistanceBringSettingsBack) {
  const std::vector<Prospect> waiting{{"slow", 1.4}, {"slowest", 0.5}};
  const std::vector<Prospect> right{{"fast", 2, 20}, {"near", 1.6, 16}};
  EXPECT_THAT(brought_back(waiting, right), ElementsAre());
  // Measured speeds are off by a factor of 1.5 and 3.
  EXPECT_THAT(brought_back(waiting, {{"fast", 2, 20}, {"near", 1.6, 24}}), ElementsAre("slow"));
  EXPECT_THAT(brought_back(waiting, {{"fast", 2, 20}, {"near", 1.5, 45}}), ElementsAre("slow", "slowest"));
  EXPECT_THAT(brought_back(waiting, {}), ElementsAre("slow", "slowest"));
}

}  // namespace
}  // namespace draftsmith::evaluate
