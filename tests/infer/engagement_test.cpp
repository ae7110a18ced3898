// Engagement of a large model: scripted pairs whose tokens are known by hand, the ends of both curves, and refusals.
#include "infer/engagement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/drafters/prompt_lookup_drafter.h"
#include "tests/infer/acceptance/bild_fixtures.h"
#include "tests/support/errors.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A large and a small model without weights.
struct Engaged {
  explicit Engaged(const Case& oracles)
      : large(oracle_info(oracles.vocabulary), oracles.target),
        small(oracle_info(oracles.vocabulary), oracles.drafter) {
    models.target = &large;
    models.drafter = as_drafter(small);
  }
  EngagedOutputs oracle(double threshold, int64_t batch = 1) {
    return engage(models, {EngagementPolicy::kOracle, threshold, limit, batch}, prompts);
  }
  EngagedOutputs fallback(double threshold, int64_t batch = 1) {
    return engage(models, {EngagementPolicy::kFallback, threshold, limit, batch}, prompts);
  }
  std::vector<Ids> greedy_of(OracleModel& model) const {
    GenerationModels alone;
    alone.target = &model;
    DecodeOptions options;
    options.max_new_tokens = limit;
    std::vector<Ids> outputs;
    for (auto& result : Generator(alone, options).generate(prompts)) outputs.push_back(result.ids);
    return outputs;
  }

  OracleModel large;
  OracleModel small;
  GenerationModels models;
  std::vector<Ids> prompts{{2}};
  int64_t limit = 4;
};

// Five ids, of which EOS has no mass: a peak of probability P leaves (1 - P) / 3 to each of the three others.
//
//   position   small's token   large's token   p of the small's token
//      0          2 (.9)          2 (.8)              .8
//      1          3 (.6)          4 (.7)              .1
//      2          4 (.4)          4 (.5)              .5
//      3          2 (.9)          3 (.4)              .2
Engaged by_hand() {
  return Engaged({.target = scripted(5, {{2, .8}, {4, .7}, {4, .5}, {3, .4}}),
                  .drafter = scripted(5, {{2, .9}, {3, .6}, {4, .4}, {2, .9}}),
                  .vocabulary = 5});
}

struct Expected {
  double threshold;
  Ids ids;
  int64_t engaged;
  int64_t changed;
};

TEST(Engagement, TheOracleReplacesTokensThatTheLargeModelFindsUnlikely) {
  Engaged pair = by_hand();
  for (const auto& [threshold, ids, engaged, changed] : {Expected{0, {2, 3, 4, 2}, 0, 0},
                                                         {.15, {2, 4, 4, 2}, 1, 1},
                                                         {.3, {2, 4, 4, 3}, 2, 2},
                                                         {.6, {2, 4, 4, 3}, 3, 2},
                                                         {1.5, {2, 4, 4, 3}, 4, 2}}) {
    const EngagedOutputs outputs = pair.oracle(threshold);
    EXPECT_THAT(outputs.ids, ElementsAre(ids)) << threshold;
    EXPECT_EQ(outputs.tokens, 4) << threshold;
    EXPECT_EQ(outputs.engaged, engaged) << threshold;
    EXPECT_EQ(outputs.changed, changed) << threshold;
  }
}

TEST(Engagement, FallbackAsksTheLargeModelWhereTheSmallOneIsUnsure) {
  Engaged pair = by_hand();
  for (const auto& [threshold, ids, engaged, changed] : {Expected{0, {2, 3, 4, 2}, 0, 0},
                                                         {.5, {2, 3, 4, 2}, 1, 0},
                                                         {.7, {2, 4, 4, 2}, 2, 0},
                                                         {1.5, {2, 4, 4, 3}, 4, 0}}) {
    const EngagedOutputs outputs = pair.fallback(threshold);
    EXPECT_THAT(outputs.ids, ElementsAre(ids)) << threshold;
    EXPECT_EQ(outputs.tokens, 4) << threshold;
    EXPECT_EQ(outputs.engaged, engaged) << threshold;
    EXPECT_EQ(outputs.changed, std::nullopt) << threshold;
  }
}

// On texts with ends of their own, longer than BiLD's ten tokens in a row.
TEST(Engagement, BothCurvesBeginWithTheSmallModelAndEndWithTheLargeOne) {
  const OracleFunction large = random_oracle(12, 3);
  Engaged pair({.target = large, .drafter = mixture(large, random_oracle(12, 4), .5), .vocabulary = 12});
  pair.prompts = {{2}, {3, 4}, {5, 6, 7}, {2, 9}, {8}};
  pair.limit = 24;
  const std::vector<Ids> alone = pair.greedy_of(pair.small);
  const std::vector<Ids> target = pair.greedy_of(pair.large);
  EXPECT_NE(alone, target);
  for (const int64_t batch : {1, 3}) {
    EXPECT_EQ(pair.oracle(0, batch).ids, alone);
    EXPECT_EQ(pair.fallback(0, batch).ids, alone);
    EXPECT_EQ(pair.fallback(0, batch).engaged, 0);
    for (const EngagedOutputs& all : {pair.oracle(2, batch), pair.fallback(2, batch)}) {
      EXPECT_EQ(all.ids, target);
      EXPECT_EQ(all.engaged, all.tokens);
    }
  }
}

TEST(Engagement, BatchesChangeNothing) {
  const OracleFunction large = random_oracle(12, 3);
  Engaged pair({.target = large, .drafter = mixture(large, random_oracle(12, 4), .5), .vocabulary = 12});
  pair.prompts = {{2}, {3, 4}, {5, 6, 7}, {2, 9}, {8}};
  pair.limit = 24;
  const EngagedOutputs one = pair.oracle(.1);
  const EngagedOutputs three = pair.oracle(.1, 3);
  EXPECT_EQ(one.ids, three.ids);
  EXPECT_EQ(one.engaged, three.engaged);
  EXPECT_EQ(one.changed, three.changed);
  EXPECT_GT(one.engaged, 0);
  EXPECT_LT(one.engaged, one.tokens);
}

TEST(Engagement, NeedsASmallModelWithProbabilities) {
  Engaged pair = by_hand();
  Problems none;
  check_engagement(pair.models, "engagement[0]", none);
  EXPECT_TRUE(none.list().empty());
  pair.models.drafter = lookup_drafter(4);
  Problems problems;
  check_engagement(pair.models, "engagement[0]", problems);
  ASSERT_EQ(problems.list().size(), 1U);
  EXPECT_EQ(problems.list()[0].where, "engagement[0]");
  EXPECT_THAT(problems.list()[0].what, HasSubstr("only proposes tokens"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
