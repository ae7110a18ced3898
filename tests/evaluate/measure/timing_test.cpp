// What is decoded around the times that suites measure.
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

// Returns the index of the first call after the counting pass and a warm-up of so many calls.
size_t first_timed(const std::vector<FakeEngine::Call>& calls, size_t warm_up) {
  size_t counted = 0;
  for (size_t i = 0; i < calls.size(); ++i) counted = calls[i].count ? i + 1 : counted;
  return counted + warm_up;
}

// A setting whose model the one before it had not used was up to 14 % slower.
TEST(EvaluationMeasure, ASettingGoesOnForAWhileAfterAFewTokens) {
  FakeSuite suite;
  suite.options.max_new_tokens = 50;
  suite.options.forced_lines = 0;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine;
  engine.seconds = [](const Setting& run, int64_t) { return run.decode.drafts() ? 0.0125 : 0.03; };
  suite.evaluate(engine);
  std::vector<size_t> turns;  // timed lines in each
  for (size_t i = first_timed(engine.calls, 6); i < engine.calls.size(); ++i) {
    const FakeEngine::Call& call = engine.calls[i];
    if (call.max_new_tokens < 50) {
      EXPECT_LE(call.max_new_tokens, 4);
      turns.push_back(0);
    } else {
      EXPECT_EQ(engine.calls[i - 1].label, call.label);
      ++turns.back();
    }
  }
  EXPECT_EQ(turns, std::vector<size_t>(static_cast<size_t>(3 * 3 * suite.options.repetitions), 8));  // 24 lines
}

TEST(EvaluationMeasure, ATurnIsOneLineWhereLinesAreLongOrTheirTimesUnknown) {
  for (const bool known : {true, false}) {
    FakeSuite suite;
    suite.options.max_new_tokens = 50;
    suite.options.warmup = known ? 2 : 0;
    FakeEngine engine;
    engine.seconds = [&](const Setting&, int64_t) { return known ? 0.2 : 0.001; };
    suite.evaluate(engine);
    for (size_t i = first_timed(engine.calls, known ? 4 : 0); i < engine.calls.size(); ++i) {
      if (engine.calls[i].max_new_tokens < 50) continue;
      EXPECT_LE(engine.calls[i - 1].max_new_tokens, 4);
    }
  }
}

// A stop of a virtual machine lasts seconds, and belongs to no setting.
TEST(EvaluationMeasure, TimesABatchAgainIfTheMachineStoodStill) {
  FakeSuite suite;
  suite.options.max_new_tokens = 50;
  FakeEngine engine;
  constexpr int64_t kLast = 23;
  int64_t visits = 0;
  engine.seconds = [&](const Setting&, int64_t line) {
    // Its two settings are counted, and later timed; the warm-up visits the first lines.
    if (line == kLast && ++visits == 6) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    return 0.2;
  };
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(results.tasks.front().timed_again, 1);
}

TEST(EvaluationMeasure, OutputsShorterThanThatAreDecodedWhole) {
  FakeSuite suite;
  suite.options.max_new_tokens = 2;
  FakeEngine engine;
  suite.evaluate(engine);
  for (const FakeEngine::Call& call : engine.calls) EXPECT_EQ(call.max_new_tokens, 2);
}

}  // namespace
}  // namespace draftsmith::evaluate
