// What is decoded around the times that suites measure.
#include <gtest/gtest.h>

#include "tests/infer/evaluation_fake_engine.h"

namespace draftsmith::infer {
namespace {

// Without that, a setting whose model the one before it had not used read its weights anew, and was up to 14 % slower.
TEST(EvaluationMeasure, EachTimedDecodingFollowsAFewTokensOfItsOwnSetting) {
  FakeSuite suite;
  suite.options.warmup = 0;
  suite.options.max_new_tokens = 50;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine;
  suite.evaluate(engine);
  int64_t timed = 0;
  for (size_t i = 0; i < engine.calls.size(); ++i) {
    const FakeEngine::Call& call = engine.calls[i];
    if (call.count || call.max_new_tokens < 50) continue;
    ++timed;
    ASSERT_GT(i, 0u);
    EXPECT_EQ(engine.calls[i - 1].label, call.label);
    EXPECT_LE(engine.calls[i - 1].max_new_tokens, 4);
    EXPECT_FALSE(engine.calls[i - 1].count);
  }
  EXPECT_EQ(timed, 2 * 24 * suite.options.repetitions);
}

TEST(EvaluationMeasure, OutputsShorterThanThatAreDecodedWhole) {
  FakeSuite suite;
  suite.options.max_new_tokens = 2;
  FakeEngine engine;
  suite.evaluate(engine);
  for (const FakeEngine::Call& call : engine.calls) EXPECT_EQ(call.max_new_tokens, 2);
}

}  // namespace
}  // namespace draftsmith::infer
