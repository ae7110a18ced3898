// Tuning from a suite's table to a tuned suite, with an engine whose outputs and times are known.
#include "evaluate/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/toml.h"
#include "evaluate/tuning/tuned_suite.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// BiLD with 9 thresholds, of which lower ones are faster and those below 0.35 lose quality, and a fixed window of 1 to
// 20, of which 3 is the fastest. Of windows above 4 theory predicts less than 75 % of the best speed.
class TuningSuite : public testing::Test {
 protected:
  TuningSuite() : table_(parse_toml(text(), "suite.toml")) {
    Problems problems;
    suite_ = parse_options<SuiteOptions>(table_, "", problems);
    problems.throw_if_any();
  }

  static FakeEngine engine() {
    FakeEngine engine;
    engine.errors = [](const Setting& run, int64_t) {
      return run.method() == "bild" && run.decode.fallback < 0.35 ? 1 : 0;
    };
    engine.seconds = [](const Setting& run, int64_t) {
      if (run.method() == "bild") return 0.02 + 0.05 * run.decode.fallback;
      return run.decode.drafts() ? 0.04 + 0.01 * std::abs(static_cast<double>(*run.decode.window - 3)) : 0.1;
    };
    return engine;
  }

  TuningResult tune_with(FakeEngine& engine, const TuningOptions& options) const {
    return tune(suite_, options, files_.directory / "rungs", engine, {.quiet = true});
  }
  static std::vector<std::string> labels(const TuningResult& result) {
    std::vector<std::string> labels;
    for (const TunedSetting& one : result.chosen) labels.push_back(one.setting.label);
    return labels;
  }

  FakeSuite files_{72};
  toml::table table_;
  SuiteOptions suite_;

 private:
  std::string text() const {
    const TaskOptions val = files_.task("val");
    const std::string root = files_.directory.path().string();
    return fmt::format(R"(
model = "{0}"
resamples = 100
repetitions = 1
drafter = [{{ name = "small", model = "{0}" }}]
task = [
  {{ name = "val", source = "{1}", references = ["{2}"] }},
  {{ name = "test", source = "{0}/source", references = ["{0}/reference"] }},
]
[[run]]
method = "bild"
drafter = ["small"]
fallback = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
choose_on = "val"
max_drop = [0]
[[run]]
name = "window"
method = "speculative"
drafter = ["small"]
temperature = 0
window = [1, 2, 3, 4, 12, 16, 20]
[[run]]
method = "assisted"
drafter = ["small"]
)",
                       root, val.source.string(), val.references.front().string());
  }
};

constexpr TuningOptions kOptions{.task = {}, .max_drop = 0.5, .fewest_lines = 4};

TEST_F(TuningSuite, HalvingFindsWhatTheFullGridFinds) {
  FakeEngine halving = engine();
  const TuningResult result = tune_with(halving, kOptions);
  EXPECT_THAT(labels(result), ElementsAre("bild.small.FB0.4.RB5", "window.small.T0.G3"));
  ASSERT_EQ(result.rungs.size(), 2u);
  EXPECT_EQ(result.rungs[0].lines, 24);
  EXPECT_EQ(result.rungs[0].settings, 9 + 4);
  EXPECT_EQ(result.rungs[1].lines, 72);
  EXPECT_EQ(result.rungs[1].settings, 3 + 2);
  EXPECT_TRUE(result.chosen[0].allowed);
  EXPECT_EQ(result.chosen[0].of, 9);
  EXPECT_NEAR(result.chosen[0].speedup, 0.1 / 0.04, 1e-2);
  std::filesystem::remove_all(files_.directory / "rungs");
  FakeEngine full = engine();
  TuningOptions all = kOptions;
  all.full = true;
  EXPECT_EQ(labels(tune_with(full, all)), labels(result));
  EXPECT_LT(halving.decodes, 0.7 * static_cast<double>(full.decodes));
}

TEST_F(TuningSuite, TheorySavesDecodingsAndChangesNoWinner) {
  FakeEngine with = engine();
  const TuningResult result = tune_with(with, kOptions);
  EXPECT_THAT(result.ruled_out, ElementsAre("window.small.T0.G12", "window.small.T0.G16", "window.small.T0.G20"));
  EXPECT_EQ(with.forced_outputs.size(), 1u);  // one pass for all windows of a drafter
  EXPECT_EQ(with.forced_outputs[0].size(), 8u);
  std::filesystem::remove_all(files_.directory / "rungs");
  FakeEngine without = engine();
  TuningOptions measured = kOptions;
  measured.theory = false;
  const TuningResult same = tune_with(without, measured);
  EXPECT_EQ(labels(same), labels(result));
  EXPECT_TRUE(same.ruled_out.empty());
  EXPECT_EQ(same.rungs[0].settings, 9 + 7);
  EXPECT_LT(with.decodes, without.decodes);
}

TEST_F(TuningSuite, MeasurementsOverruleTheory) {
  FakeEngine fake = engine();
  fake.agreement = [] { return 0.3; };  // so that theory wants short windows
  fake.seconds = [](const Setting& run, int64_t) {
    if (run.method() == "bild") return 0.02 + 0.05 * run.decode.fallback;
    return run.decode.drafts() ? 0.1 / static_cast<double>(*run.decode.window) : 0.1;
  };
  const TuningResult result = tune_with(fake, kOptions);
  EXPECT_EQ(result.rungs[0].settings, 9 + 3);
  EXPECT_EQ(result.rungs[1].settings, 3 + 2 + 4);
  EXPECT_EQ(labels(result).back(), "window.small.T0.G20");
  EXPECT_TRUE(result.ruled_out.empty());
}

TEST_F(TuningSuite, WithoutAPredictionEverythingIsMeasured) {
  FakeEngine fake = engine();
  fake.agreement = []() -> double { throw std::runtime_error("no probabilities"); };
  const TuningResult result = tune_with(fake, kOptions);
  EXPECT_EQ(result.rungs[0].settings, 9 + 7);
  EXPECT_EQ(labels(result).back(), "window.small.T0.G3");
}

TEST_F(TuningSuite, SettingsThatTheoryRuledOutStandInForThoseThatFail) {
  FakeEngine fake = engine();
  fake.death = [](const Setting& run, const DecodeBatch&) {
    if (run.method() == "speculative" && *run.decode.window < 10) throw std::runtime_error("no luck");
  };
  EXPECT_EQ(labels(tune_with(fake, kOptions)).back(), "window.small.T0.G12");
}

TEST_F(TuningSuite, ABudgetOfManyPointsAllowsFasterSettings) {
  FakeEngine fake = engine();
  TuningOptions generous = kOptions;
  generous.max_drop = 50;
  EXPECT_EQ(labels(tune_with(fake, generous)).front(), "bild.small.FB0.1.RB5");
}

// Returns the metric that counts the wrong words of a line.
metrics::MetricOptions wrong_words() {
  metrics::MetricOptions command;
  command.command = "awk -F'\\t' '{print gsub(/w99/, \"\", $1)}'";
  command.label = "wrong";
  command.lower_is_better = true;
  return command;
}

TEST_F(TuningSuite, OfErrorRatesTheBudgetIsARise) {
  const auto tuned_by = [&](const metrics::MetricOptions& metric) {
    for (TaskOptions& task : suite_.task) task.metric = metric;
    std::filesystem::remove_all(files_.directory / "rungs");
    FakeEngine fake = engine();
    return tune_with(fake, kOptions);
  };
  const TuningResult bleu = tuned_by({});
  const TuningResult result = tuned_by(wrong_words());
  EXPECT_THAT(labels(result), ElementsAre("bild.small.FB0.4.RB5", "window.small.T0.G3"));
  EXPECT_TRUE(result.chosen[0].allowed);
  EXPECT_EQ(result.chosen[0].drop, 0);
  for (const Rung& rung : result.rungs) EXPECT_LE(rung.drop, kOptions.max_drop) << rung.best;
  EXPECT_EQ(result.ruled_out, bleu.ruled_out);  // theory knows no metric
}

TEST_F(TuningSuite, IfAllRaiseAnErrorRateTheOneThatAddsLeastIsChosen) {
  for (TaskOptions& task : suite_.task) {
    task.metric = wrong_words();
    task.metric.point = 0.1;
  }
  FakeEngine fake = engine();
  fake.errors = [](const Setting& run, int64_t) {
    if (run.method() != "bild") return 0;
    return run.decode.fallback == 0.2 ? 1 : 2;
  };
  const TuningResult result = tune_with(fake, kOptions);
  EXPECT_EQ(labels(result).front(), "bild.small.FB0.2.RB5");
  EXPECT_FALSE(result.chosen[0].allowed);
  EXPECT_GT(result.chosen[0].drop, 5);
}

TEST_F(TuningSuite, ThePercentileOfSentencesIsAnotherObjective) {
  FakeEngine fake = engine();
  // Window 1 is slower on the mean, but has no slow lines.
  fake.seconds = [before = fake.seconds](const Setting& run, int64_t line) {
    const bool window = run.method() == "speculative";
    return before(run, line) * (window && *run.decode.window != 1 && line % 10 == 0 ? 2 : 1);
  };
  EXPECT_EQ(labels(tune_with(fake, kOptions)).back(), "window.small.T0.G3");
  std::filesystem::remove_all(files_.directory / "rungs");
  TuningOptions sentences = kOptions;
  sentences.objective = Objective::kSentenceP95;
  sentences.full = true;
  const TuningResult result = tune_with(fake, sentences);
  EXPECT_EQ(labels(result).back(), "window.small.T0.G1");
  EXPECT_NEAR(result.chosen.back().p95, 0.06, 1e-2);
}

TEST_F(TuningSuite, AnInterruptedSearchGoesOn) {
  FakeEngine whole = engine();
  const auto expected = labels(tune_with(whole, kOptions));
  std::filesystem::remove_all(files_.directory / "rungs");
  FakeEngine killed = engine();
  killed.fail_after = whole.decodes * 3 / 4;  // in the second rung
  EXPECT_THROW(tune_with(killed, kOptions), FakeEngine::Killed);
  FakeEngine resumed = engine();
  const TuningResult result = tune_with(resumed, kOptions);
  EXPECT_EQ(labels(result), expected);
  EXPECT_TRUE(result.rungs[0].measured_before);
  EXPECT_LT(resumed.decodes, whole.decodes / 2);
  FakeEngine again = engine();
  EXPECT_EQ(labels(tune_with(again, kOptions)), expected);
  EXPECT_EQ(again.decodes, 0);
  EXPECT_TRUE(again.forced_outputs.empty());
  suite_.seed = 7;  // another suite: nothing of it is measured
  FakeEngine other = engine();
  EXPECT_FALSE(tune_with(other, kOptions).rungs[0].measured_before);
}

TEST_F(TuningSuite, ASettingThatFailsLosesNoOther) {
  FakeEngine fake = engine();
  fake.death = [](const Setting& run, const DecodeBatch&) {
    if (run.method() == "bild" && run.decode.fallback == 0.4) throw std::runtime_error("no luck");
  };
  const TuningResult result = tune_with(fake, kOptions);
  EXPECT_EQ(labels(result).front(), "bild.small.FB0.5.RB5");
  EXPECT_THAT(tuning_table(result, kOptions),
              HasSubstr("! rung 1: bild.small.FB0.4.RB5 failed during decoding: no luck"));
  fake.death = [](const Setting& run, const DecodeBatch&) {
    if (run.method() == "bild") throw std::runtime_error("no luck");
  };
  std::filesystem::remove_all(files_.directory / "rungs");
  EXPECT_THAT(error_of<RunError>([&] { tune_with(fake, kOptions); }), HasSubstr("all settings of the run failed"));
}

TEST_F(TuningSuite, TheTunedSuiteHasTheChosenSettingsAndTheTestData) {
  FakeEngine fake = engine();
  const TuningResult result = tune_with(fake, kOptions);
  const std::string text = tuned_suite(table_, result, "Tuned.\nOn val.");
  EXPECT_THAT(text, AllOf(HasSubstr("# Tuned.\n# On val.\n"), Not(HasSubstr("choose_on")), Not(HasSubstr("max_drop"))));
  Problems problems;
  const auto tuned = parse_options<SuiteOptions>(parse_toml(text, "tuned.toml"), "", problems);
  problems.throw_if_any();
  ASSERT_EQ(tuned.task.size(), 1u);
  EXPECT_EQ(tuned.task.front().name, "test");
  std::vector<std::string> settings;
  for (const Setting& setting : expand_settings(tuned)) settings.push_back(setting.label);
  EXPECT_THAT(settings, ElementsAre("greedy", "bild.small.FB0.4.RB5", "window", "assisted.small"));
  FakeEngine test = engine();
  const SuiteResult reported = run_evaluation(tuned, files_.directory / "out", test, {.quiet = true});
  EXPECT_TRUE(reported.failures.empty());
}

TEST_F(TuningSuite, TablesSayWhatWasFound) {
  FakeEngine fake = engine();
  const std::string table = tuning_table(tune_with(fake, kOptions), kOptions);
  EXPECT_LE(widest_line(table), 100u) << table;
  EXPECT_THAT(table,
              AllOf(HasSubstr("Tuned on val for tokens a second, with at most 0.5 points lost."),
                    HasSubstr("bild.small.FB0.4.RB5"), HasSubstr("window.small.T0.G3"), HasSubstr("rung"),
                    HasSubstr("Not measured, since theory predicts less than 75 % of the fastest of their run")));
}

TEST_F(TuningSuite, MistakesAreFoundBeforeAnythingRuns) {
  const auto error = [&] { return error_of([&] { tuning_task(suite_, kOptions); }); };
  EXPECT_EQ(error(), "no error");
  TuningOptions unknown = kOptions;
  unknown.task = "vall";
  EXPECT_THAT(error_of([&] { tuning_task(suite_, unknown); }), HasSubstr("did you mean val?"));
  SuiteOptions changed = suite_;
  std::swap(changed, suite_);
  suite_.task[1].source = suite_.task[0].source;
  EXPECT_THAT(error(), HasSubstr("the lines on which settings are chosen are reported on"));
  suite_.task.pop_back();
  EXPECT_THAT(error(), HasSubstr("no task to report on"));
  suite_ = changed;
  suite_.task[0].references.clear();
  suite_.task[0].metric.name = "none";
  EXPECT_THAT(error(), HasSubstr("chosen by their quality"));
  suite_ = changed;
  suite_.run.erase(suite_.run.begin(), suite_.run.begin() + 2);
  EXPECT_THAT(error(), HasSubstr("--on"));  // the other runs choose on no task
  unknown.task = "val";
  EXPECT_THAT(error_of([&] { tuning_task(suite_, unknown); }), HasSubstr("nothing to tune"));
}

}  // namespace
}  // namespace draftsmith::evaluate
