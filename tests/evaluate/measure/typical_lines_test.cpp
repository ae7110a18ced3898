// Lines on which step times are measured, and the medians of their times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/measure/timing.h"

namespace draftsmith::evaluate {
namespace {

SettingRecords records_of(const std::vector<size_t>& lengths) {
  SettingRecords records;
  for (const size_t length : lengths) records.emplace_back().ids.assign(length, 5);
  return records;
}

TEST(TypicalLines, HaveTheLengthsOfTheQuartiles) {
  EXPECT_THAT(typical_lines(records_of({8, 1, 7, 2, 6, 3, 5, 4})), testing::ElementsAre(5, 6, 2));
}

TEST(TypicalLines, AreDifferentAndNotEmpty) {
  EXPECT_THAT(typical_lines(records_of({0, 3, 0})), testing::ElementsAre(1));
  EXPECT_THAT(typical_lines(records_of({9, 3})), testing::ElementsAre(1, 0));
  EXPECT_TRUE(typical_lines(records_of({0, 0})).empty());
  EXPECT_TRUE(typical_lines({}).empty());
}

TEST(TypicalLines, CostsAreMediansOfEachTime) {
  const std::vector<infer::StepCosts> measured{{.target = {1, 9, 3}, .draft = 0.2, .drafts = {.3, .5}},
                                               {.target = {3, 2, 2}, .draft = 0.3, .drafts = {.4, .9}},
                                               {.target = {2, 4, 1}, .draft = 0.1, .drafts = {.2, .6}}};
  const infer::StepCosts costs = median_costs(measured);
  EXPECT_THAT(costs.target, testing::ElementsAre(2, 4, 2));
  EXPECT_EQ(costs.draft, 0.2);
  EXPECT_THAT(costs.drafts, testing::ElementsAre(.3, .6));
}

}  // namespace
}  // namespace draftsmith::evaluate
