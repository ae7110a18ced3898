#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/costs/step_costs.h"

namespace draftsmith::infer {
namespace {

TEST(StepTimes, DraftingFollowsTheMeasuredRounds) {
  const StepCosts costs{.target = {10}, .draft = 2, .drafts = {3, 5, 6}};
  EXPECT_DOUBLE_EQ(costs.drafting(0), 0);
  EXPECT_DOUBLE_EQ(costs.drafting(0.5), 1.5);
  EXPECT_DOUBLE_EQ(costs.drafting(1), 3);
  EXPECT_DOUBLE_EQ(costs.drafting(2.5), 5.5);
  EXPECT_DOUBLE_EQ(costs.drafting(3), 6);
  EXPECT_DOUBLE_EQ(costs.drafting(4.5), 9);  // steps beyond take `draft`
}

TEST(StepTimes, DraftingTakesEqualStepsWhereNoRoundWasMeasured) {
  EXPECT_DOUBLE_EQ((StepCosts{.target = {10}, .draft = 2}).drafting(3.5), 7);
  EXPECT_DOUBLE_EQ((StepCosts{.target = {10}, .draft = 0}).drafting(3), 0);
}

TEST(StepTimes, RoundsGiveMedians) {
  RoundTimes times;
  for (const double second : {1.0, 5.0, 2.0}) {
    times.add(1, 0, 10 * second);
    times.add(2, second, 20 * second);
    times.add(3, 4 * second, 30 * second);
  }
  const StepCosts costs = times.medians();
  EXPECT_THAT(costs.target, ::testing::ElementsAre(20, 40, 60));
  EXPECT_THAT(costs.drafts, ::testing::ElementsAre(2, 8));
  EXPECT_DOUBLE_EQ(costs.draft, 4);  // of 1, 2, 5 and 2, 4, 10
}

TEST(StepTimes, WithoutDraftsThereIsNoDrafter) {
  RoundTimes times;
  times.add(1, 0, 10);
  EXPECT_DOUBLE_EQ(times.medians().draft, 0);
  EXPECT_TRUE(times.medians().drafts.empty());
}

}  // namespace
}  // namespace draftsmith::infer
