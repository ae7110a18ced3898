// Times and speedups of whole suites: what is decoded around them, unbiased, repeated, recomputable.
#include <chrono>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

bool holds(const Ratio& ratio, double value) {
  constexpr double kRounding = 1e-9;
  return ratio.interval.low <= value + kRounding && value <= ratio.interval.high + kRounding;
}

// Lengths and times of a sampler: the same distribution for every setting, other draws for each.
size_t sampled_length(const Setting& run, int64_t line) {
  const CounterRandom random(7, "length/" + run.label);
  size_t words = 1;
  while (words < 60 && random.uniform(100 * static_cast<uint64_t>(line) + words) > 0.05) ++words;
  return words;
}

TEST(Speedups, BaselinesAreMeasuredTwiceAndReadOneWhateverLengthsAMethodDraws) {
  FakeSuite suite({"speculative"}, 120);
  FakeEngine engine;
  engine.length = [](const Setting& run, int64_t line, size_t words) {
    return run.temperature() == 0 ? words : sampled_length(run, line);
  };
  engine.seconds = [](const Setting& run, int64_t line) {
    const size_t words = run.temperature() == 0 ? 6 + static_cast<size_t>(line) % 8 : sampled_length(run, line);
    return 0.001 * static_cast<double>(words);  // a token takes the same time everywhere
  };
  engine.tokens_per_run = 1;
  const auto result = suite.evaluate(engine);
  const SettingResult& greedy = setting_of(result.results, "A/A greedy");
  EXPECT_EQ(greedy.repeats, "greedy");
  EXPECT_NEAR(greedy.speed.speedup.value, 1, 1e-3);
  EXPECT_TRUE(holds(greedy.speed.speedup, 1));
  const SettingResult& sample = setting_of(result.results, "A/A sample");
  EXPECT_EQ(sample.repeats, "sample.T1");
  EXPECT_EQ(sample.baseline, "sample.T1");
  EXPECT_NEAR(sample.speed.speedup.value, 1, 1e-3);
  EXPECT_TRUE(holds(sample.speed.speedup, 1));
  EXPECT_NEAR(setting_of(result.results, "speculative.small.T1").speed.speedup.value, 1, 1e-3);
  EXPECT_THAT(result.table, testing::AllOf(HasSubstr("A/A sample"), HasSubstr("noise floor")));
}

// Without disturbed pairs the estimate is a ratio of sums.
TEST(Speedups, CanBeComputedFromTheLinesFile) {
  FakeSuite suite({"assisted"}, 40);
  FakeEngine engine;
  engine.seconds = [](const Setting& run, int64_t line) {
    return (run.decode.drafts() ? 0.05 : 0.1) * static_cast<double>(1 + line * 7 % 10);
  };
  const Results results = suite.evaluate(engine).results;
  double own = 0, base = 0;
  std::istringstream file(read_file(suite.directory / "out/lines.jsonl"));
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(line.at("task"), "test");
    EXPECT_EQ(line.contains("baseline_seconds"), line.at("run") != "greedy");
    if (line.at("run") != "assisted.small") continue;
    ASSERT_EQ(line.at("seconds").size(), 3U);
    ASSERT_EQ(line.at("baseline_decode_seconds").size(), 3U);
    for (const double seconds : line.at("seconds")) own += seconds;
    for (const double seconds : line.at("baseline_seconds")) base += seconds;
  }
  EXPECT_NEAR(setting_of(results, "assisted.small").speed.speedup.value, base / own, 1e-9);
}

TEST(Speedups, BaselinesThatAreDisturbedOrOfSeveralTemperaturesAreToldApart) {
  FakeSuite suite({"speculative"});
  suite.options.run[0].lists[&DecodeOptions::temperature] = {0.5, 1};
  FakeEngine engine;
  engine.seconds = [](const Setting& run, int64_t) { return run.repeats == "greedy" ? 0.15 : 0.1; };
  const auto result = suite.evaluate(engine);
  EXPECT_EQ(setting_of(result.results, "A/A sample.T0.5").repeats, "sample.T0.5");
  EXPECT_EQ(setting_of(result.results, "A/A sample.T1").repeats, "sample.T1");
  EXPECT_THAT(result.table, HasSubstr("! A/A greedy 0.67"));
}

// A setting whose model the one before it had not used was up to 14 % slower.
TEST(EvaluationMeasure, ASettingGoesOnForAWhileAfterAFewTokens) {
  FakeSuite suite({"assisted"});
  suite.options.max_new_tokens = 50;
  suite.options.forced_lines = 0;
  FakeEngine engine;
  engine.seconds = [](const Setting& run, int64_t) { return run.decode.drafts() ? 0.0125 : 0.03; };
  suite.evaluate(engine);
  size_t counted = 0;  // calls of the counting pass, which six calls of a warm-up follow
  for (size_t i = 0; i < engine.calls.size(); ++i) counted = engine.calls[i].count ? i + 1 : counted;
  std::vector<size_t> turns;  // timed lines in each
  for (size_t i = counted + 6; i < engine.calls.size(); ++i) {
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

// A stop of a virtual machine lasts seconds, and belongs to no setting. Both sides of a pair are timed again.
TEST(EvaluationMeasureSerial, TimesAPairAgainIfTheMachineStoodStill) {
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
  FakeEngine steady;
  steady.seconds = [](const Setting&, int64_t) { return 0.2; };
  suite.evaluate(steady);
  EXPECT_EQ(engine.decodes, steady.decodes + 4) << "two turns of one line, each after some tokens";
}

}  // namespace
}  // namespace draftsmith::evaluate
