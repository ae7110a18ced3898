// Timed steps: caches are as before each step, and contexts are the same each time.
#include "infer/costs/step_costs.h"

#include <gmock/gmock.h>

#include "tests/support/models.h"

namespace draftsmith::infer::testing {
namespace {

TEST(TimedModel, StepsOfABatchBeginAtTheSamePlaceEachTime) {
  const auto llama = model::tiny_model(model::tiny_llama(), at::kFloat);
  llama->pack();  // ATen's products and SiLU give equal rows of a batch other last bits
  TimedModel timed(*llama, random_context(llama->info(), {.rows = 3, .length = 9}), 4);
  const auto logits_of = [&](int64_t tokens) {
    timed.go_back();
    EXPECT_GT(timed.run(tokens), 0);
    return timed.output().logits.clone();
  };
  const at::Tensor first = logits_of(4);
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{3, 4, 31}));
  EXPECT_TRUE(first[0].equal(first[2]));
  logits_of(1);
  EXPECT_TRUE(logits_of(4).equal(first));
  timed.go_back();
  EXPECT_GT(timed.run(4, model::Logits::kNone), 0);
  EXPECT_FALSE(timed.output().logits.defined());
}

TEST(RandomContext, IsTheSameEachTimeAndLeavesOutControlIds) {
  model::ModelInfo info{.vocabulary = 20};
  const CalibrationContext context = random_context(info, {.rows = 2, .source = 50, .length = 60});
  EXPECT_EQ(context.rows, 2);
  EXPECT_EQ(context.source.size(), 50u);
  EXPECT_EQ(context.prefix.size(), 60u);
  EXPECT_EQ(random_context(info, {.rows = 2, .source = 50, .length = 60}).source, context.source);
  EXPECT_THAT(context.source, ::testing::Each(::testing::AllOf(::testing::Ge(3), ::testing::Lt(20))));
  info.encoder_decoder = false;
  EXPECT_TRUE(random_context(info, {}).source.empty());
}

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

}  // namespace
}  // namespace draftsmith::infer::testing
