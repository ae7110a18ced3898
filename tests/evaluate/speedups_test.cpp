// Speedups of whole suites: unbiased, repeated, recomputable.

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

const SettingResult& find(const Results& results, const std::string& name, size_t task = 0) {
  const SettingResult* found = results.tasks.at(task).find(name);
  if (found == nullptr) throw std::runtime_error("no run " + name);
  return *found;
}

bool covers(const Ratio& ratio, double value) {
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
  FakeSuite suite(120);
  suite.options.run = {FakeSuite::run("speculative")};
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
  const SettingResult& greedy = find(result.results, "A/A greedy");
  EXPECT_EQ(greedy.repeats, "greedy");
  EXPECT_NEAR(greedy.speed.speedup.value, 1, 1e-3);
  EXPECT_TRUE(covers(greedy.speed.speedup, 1));
  const SettingResult& sample = find(result.results, "A/A sample");
  EXPECT_EQ(sample.repeats, "sample.T1");
  EXPECT_EQ(sample.baseline, "sample.T1");
  EXPECT_NEAR(sample.speed.speedup.value, 1, 1e-3);
  EXPECT_TRUE(covers(sample.speed.speedup, 1));
  EXPECT_NEAR(find(result.results, "speculative.small.T1").speed.speedup.value, 1, 1e-3);
  EXPECT_THAT(result.table, HasSubstr("A/A sample"));
  EXPECT_THAT(result.table, HasSubstr("noise floor"));
  EXPECT_THAT(result.table, testing::ContainsRegex("times as fast a line, its outputs have [+-][0-9]+ % of tokens"));
}

TEST(Speedups, ADisturbedBaselineIsSaid) {
  FakeSuite suite;
  FakeEngine engine;
  engine.seconds = [](const Setting& run, int64_t) { return run.repeats.empty() ? 0.1 : 0.15; };
  EXPECT_THAT(suite.evaluate(engine).table, HasSubstr("! A/A greedy 0.67"));
}

TEST(Speedups, SeveralSamplingBaselinesAreToldApart) {
  FakeSuite suite;
  SettingGrid run = FakeSuite::run("speculative");
  run.lists[&DecodeOptions::temperature] = {0.5, 1};
  suite.options.run = {run};
  FakeEngine engine;
  const auto result = suite.evaluate(engine);
  EXPECT_EQ(find(result.results, "A/A sample.T0.5").repeats, "sample.T0.5");
  EXPECT_EQ(find(result.results, "A/A sample.T1").repeats, "sample.T1");
}

// Machine whose speed drifts: the logarithm of a line's time follows an autoregressive process over calls.
class DriftingEngine : public FakeEngine {
 public:
  explicit DriftingEngine(uint64_t seed) : random_(seed, "drift") {
    seconds = [this](const Setting& run, int64_t line) {
      drift_ = 0.9 * drift_ + 0.04 * random_.normal(calls_++);
      const double noise = 0.02 * random_.normal(1'000'000 + calls_);
      const double words = 6 + static_cast<double>(line % 8);
      return 0.002 * words * (run.decode.drafts() ? 0.5 : 1) * std::exp(drift_ + noise);
    };
  }

 private:
  CounterRandom random_;
  uint64_t calls_ = 0;
  double drift_ = 0;
};

TEST(Speedups, TheSameSettingTwiceAgreesWithinItsInterval) {
  int agree = 0;
  int cover = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FakeSuite suite(60);
    SettingGrid once = FakeSuite::run("assisted");
    once.name = "once";
    SettingGrid again = once;
    again.name = "again";
    suite.options.run = {once, again};
    suite.options.calibrate = false;
    suite.options.forced_lines = 0;
    DriftingEngine engine(seed);
    const Results results = suite.evaluate(engine).results;
    const Ratio& first = find(results, "once").speed.speedup;
    if (covers(first, find(results, "again").speed.speedup.value)) ++agree;
    if (covers(first, 2)) ++cover;
  }
  EXPECT_GE(agree, 90);
  EXPECT_GE(cover, 90);
}

TEST(Speedups, CanBeComputedFromTheLinesFile) {
  FakeSuite suite(40);
  suite.options.run = {FakeSuite::run("assisted")};
  DriftingEngine engine(1);
  const Results results = suite.evaluate(engine).results;
  struct Sum {
    double tokens = 0;
    double seconds = 0;
  };
  std::map<std::string, Sum> sums;
  std::istringstream file(read_file(suite.directory / "out/lines.jsonl"));
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(line.at("task"), "test");
    auto seconds = line.at("seconds").get<std::vector<double>>();
    ASSERT_EQ(seconds.size(), 3U);
    std::sort(seconds.begin(), seconds.end());
    sums[line.at("run")].tokens += line.at("tokens").get<double>();
    sums[line.at("run")].seconds += seconds[1];
  }
  const Sum& run = sums.at("assisted.small");
  const Sum& greedy = sums.at("greedy");
  EXPECT_NEAR(find(results, "assisted.small").speed.speedup.value,
              run.tokens / run.seconds / (greedy.tokens / greedy.seconds), 1e-9);
}

TEST(Speedups, ASettingIsNotChosenForEndingEarly) {
  FakeSuite suite;
  suite.options.task = {suite.task("test"), suite.task("val")};
  for (TaskOptions& task : suite.options.task) {
    task.references.clear();
    task.metric.name = "none";
  }
  SettingGrid run = FakeSuite::run("speculative");
  run.lists[&DecodeOptions::window] = {2, 3};
  run.lists[&DecodeOptions::temperature] = {0};
  run.choose_on = "val";
  run.max_drop = {0};
  suite.options.run = {run};
  FakeEngine engine;
  // Window 3 takes less time only because it writes half as much.
  engine.length = [](const Setting& setting, int64_t, size_t words) {
    return setting.decode.window == 3 ? words / 2 : words;
  };
  engine.seconds = [](const Setting& setting, int64_t) { return setting.decode.window == 3 ? 0.04 : 0.05; };
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(find(results, "speculative.small.drop0", 1).params.at("window"), 2);
}

TEST(Speedups, SampledRunsDifferInQualityFromSampling) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("speculative")};
  FakeEngine engine;
  engine.errors = [](const Setting& run, int64_t) { return run.temperature() == 0 ? 0 : 2; };
  const Results results = suite.evaluate(engine).results;
  const SettingResult& run = find(results, "speculative.small.T1");
  EXPECT_LT(run.quality.scores.front().value, 100);
  EXPECT_DOUBLE_EQ(run.quality.difference.value().value, 0);
  EXPECT_FALSE(find(results, "sample.T1").quality.difference.has_value());
}

}  // namespace
}  // namespace draftsmith::evaluate
