// Suites from options to files, with an engine whose outputs and times are known.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "evaluate/report/report.h"
#include "evaluate/theory/formulas.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

TEST(EvaluationSuite, ReportsQualitySpeedAcceptanceAndPrediction) {
  FakeSuite suite({"bild"});
  FakeEngine engine;
  engine.errors = [](const Setting& run, int64_t line) { return run.decode.drafts() && line % 2 == 0 ? 1 : 0; };
  const auto result = suite.evaluate(engine);
  const auto greedy = json_of(result, "greedy");
  EXPECT_DOUBLE_EQ(greedy.at("quality").at("bleu"), 100);
  EXPECT_DOUBLE_EQ(greedy.at("speed").at("speedup"), 1);
  const auto bild = json_of(result, "bild.small.FB0.5.RB5");
  EXPECT_LT(bild.at("quality").at("bleu"), 100);
  EXPECT_LT(bild.at("quality").at("bleu_ci95").at(0), bild.at("quality").at("bleu"));
  EXPECT_NEAR(bild.at("speed").at("speedup"), 2, 1e-3);  // the engine's own overhead is not in its phases
  EXPECT_DOUBLE_EQ(bild.at("acceptance").at("alpha"), 0.8);
  EXPECT_EQ(bild.at("acceptance").at("accepted_histogram"), (nlohmann::ordered_json{24, 48}));
  EXPECT_FALSE(bild.contains("predicted"));
  EXPECT_GT(bild.at("accounted").at("speedup"), 1);
  EXPECT_EQ(bild.at("exactness").at("differing_lines"), 12);
  EXPECT_EQ(bild.at("exactness").at("lossless"), false);
}

TEST(EvaluationSuite, WritesResultsTableReportAndHypothesesThatScoreAlike) {
  FakeSuite suite({"assisted"});
  FakeEngine engine;
  const auto result = suite.evaluate(engine);
  const auto out = suite.directory / "out";
  const auto written = load_json(out / "results.json");
  EXPECT_EQ(written.at("tasks").at(0).at("name"), "test");
  EXPECT_TRUE(written.at("environment").contains("commit"));
  EXPECT_EQ(read_file(out / "hyp/test.greedy.txt"), read_file(suite.directory / "reference"));
  const std::string csv = read_file(out / "results.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);  // header, greedy, A/A greedy, assisted
  const std::string html = read_file(out / "report.html");
  EXPECT_THAT(html, testing::AllOf(HasSubstr("<figure class=\"plot\">"), testing::Not(HasSubstr("src="))));
  EXPECT_LE(widest_line(result.table), 100u) << result.table;
  EXPECT_FALSE(std::filesystem::exists(out / "measurements.jsonl"));
}

TEST(EvaluationSuite, SaysHowWellDraftersPredictTheReferences) {
  FakeSuite suite({"bild"});
  suite.options.forced_lines = 5;
  FakeEngine engine;
  const auto result = suite.evaluate(engine);
  const auto prediction = to_json(result.results).at("tasks").at(0).at("prediction");
  EXPECT_EQ(prediction.at("lines"), 5);
  EXPECT_EQ(prediction.at("models").at("target").at("cross_entropy"), 1.25);
  const auto& drafter = prediction.at("models").at("small");
  EXPECT_EQ(drafter.at("accuracy"), 0.5);
  EXPECT_EQ(drafter.at("relative_accuracy"), 0.7);
  EXPECT_DOUBLE_EQ(drafter.at("relative_tv"), 0.4);
  EXPECT_THAT(result.table, HasSubstr("rel. TV"));
  EXPECT_THAT(read_file(suite.directory / "out" / "report.html"), HasSubstr("How well each drafter predicts"));
}

// A prediction comes from alpha, an account from a setting's own runs: alpha 0.8, c 0.1, a step of G + 1 tokens 1 + G
// / 10.
TEST(EvaluationSuite, OnlyFixedWindowsArePredictedAndOthersAccountedFor) {
  FakeSuite suite;
  SettingGrid fixed = FakeSuite::run("speculative");
  fixed.lists[&DecodeOptions::temperature] = {0};
  fixed.lists[&DecodeOptions::window] = {2};
  suite.options.run = {fixed, FakeSuite::run("assisted")};
  FakeEngine engine;
  const auto result = suite.evaluate(engine);
  const auto predicted = json_of(result, "speculative.small.T0.G2");
  const auto tokens = predicted.at("acceptance").at("tokens").get<double>();
  const auto length = std::llround(tokens / static_cast<double>(result.results.tasks.front().lines));
  EXPECT_NEAR(predicted.at("predicted").at("speedup"), expected_tokens(0.8, 2, length) / (2 * 0.1 + 1.2), 1e-12);
  EXPECT_NE(predicted.at("accounted").at("speedup"), predicted.at("predicted").at("speedup"));
  EXPECT_FALSE(predicted.at("predicted").contains("speedup_from_counts"));
  const auto assisted = json_of(result, "assisted.small");
  EXPECT_FALSE(assisted.contains("predicted"));
  EXPECT_EQ(assisted.at("accounted"), predicted.at("accounted"));
  EXPECT_THAT(result.table, testing::AllOf(HasSubstr(" theory "), HasSubstr(" acct ")));
  EXPECT_THAT(read_file(suite.directory / "out/report.html"), HasSubstr("accounted</th>"));
  EXPECT_THAT(read_file(suite.directory / "out/results.csv"), HasSubstr("predicted.long_run_ms,accounted.speedup"));
  EXPECT_THAT(report_markdown(result.results), HasSubstr("| theory | acct |"));
}

TEST(EvaluationSuite, AlphasOfWindowsThatStopOnConfidenceAreMarked) {
  FakeSuite suite;
  SettingGrid confident = FakeSuite::run("assisted");
  confident.lists[&DecodeOptions::confidence] = {0, 0.4};
  suite.options.run = {FakeSuite::run("bild"), confident};
  FakeEngine engine;
  const auto result = suite.evaluate(engine);
  const auto marked = [&](const std::string& name) {
    return json_of(result, name).at("acceptance").at("alpha_conditional").get<bool>();
  };
  EXPECT_TRUE(marked("bild.small.FB0.5.RB5"));
  EXPECT_FALSE(marked("assisted.small.confidence0"));
  EXPECT_TRUE(marked("assisted.small.confidence0.4"));
  EXPECT_FALSE(json_of(result, "greedy").at("acceptance").contains("alpha_conditional"));
  for (const std::string& text : {result.table, read_file(suite.directory / "out/report.html")}) {
    EXPECT_THAT(text, testing::AllOf(HasSubstr("0.800†"), HasSubstr("† alpha of tokens that the window rule")));
  }
  suite.options.run = {FakeSuite::run("assisted")};
  EXPECT_THAT(suite.evaluate(engine).table, testing::Not(HasSubstr("†")));
}

TEST(EvaluationSuite, AlphaForcedAtTemperature1IsOnSampledOutputs) {
  FakeSuite suite({"bild", "assisted"});
  suite.options.forced_lines = 5;
  FakeEngine engine;
  engine.errors = [](const Setting& run, int64_t) { return run.method() == "sample" ? 2 : 0; };
  const auto result = suite.evaluate(engine);
  ASSERT_EQ(engine.forced_outputs.size(), 3U);  // of the one drafter; the last ones are references
  const auto first_words = [&](size_t pass) { return engine.forced_outputs[pass].at(4).at(0); };
  EXPECT_EQ(engine.forced_outputs[0].size(), 5U);
  EXPECT_EQ(engine.forced_outputs[1].size(), 5U);
  EXPECT_EQ(first_words(0), 10);
  EXPECT_EQ(first_words(1), 99);
  const auto alpha = to_json(result.results).at("tasks").at(0).at("drafters").at("small").at("alpha_forced");
  EXPECT_DOUBLE_EQ(alpha.at("temperature_0"), 0.7);
  EXPECT_DOUBLE_EQ(alpha.at("temperature_1"), 0.6);
}

TEST(EvaluationSuite, AStopIsHeardWhereNothingIsTimed) {
  FakeSuite suite;
  suite.options.task[0].timed = 1;
  FakeEngine engine;
  const SignalWatch signals;
  int64_t calls = 0;
  engine.seconds = [&calls](const Setting&, int64_t) {
    if (++calls == 20) std::raise(SIGINT);
    return 0.1;
  };
  EXPECT_THROW(suite.evaluate(engine), Interrupted);
  EXPECT_EQ(calls, 20);
}

// Also with a curve that is added to the suite in between.
TEST(EvaluationSuite, AnInterruptedEvaluationGoesOnWhereItStopped) {
  FakeSuite suite({"assisted"});
  FakeEngine whole;
  const auto expected = suite.evaluate(whole);
  for (const size_t curves : {0U, 1U}) {
    std::filesystem::remove_all(suite.directory / "out");
    suite.die_after(whole.decodes * 2 / 3);  // after the counting pass and a turn of times
    // A write that the machine's death cut short.
    std::ofstream(suite.directory / "out/measurements.jsonl", std::ios::app) << R"({"task":"test","line":)";
    if (curves == 1) suite.options.engagement.emplace_back().drafter = "small";
    FakeEngine resumed;
    {
      const FileLock other(suite.directory / "out/measurements.jsonl", "--out");
      EXPECT_THAT(error_of([&] { suite.evaluate(resumed); }), HasSubstr("another run is working"));
    }
    const auto result = suite.evaluate(resumed);
    EXPECT_LT(resumed.decodes, whole.decodes * 6 / 10);
    EXPECT_EQ(to_json(result.results).at("tasks"), to_json(expected.results).at("tasks"));
    EXPECT_EQ(result.results.engagement.size(), curves);
  }
}

// Every decoding of a line begins with the window that its counting pass began with, however an evaluation is cut.
TEST(EvaluationSuite, WindowsGoOnFromLineToLineWithinATask) {
  FakeSuite suite({"assisted"});
  FakeEngine whole;
  suite.evaluate(whole);
  std::filesystem::remove_all(suite.directory / "out");
  suite.die_after(whole.decodes / 2);
  FakeEngine resumed;
  suite.evaluate(resumed);
  for (const FakeEngine* engine : {&whole, &resumed}) {
    int64_t timed = 0;
    for (const FakeEngine::Call& call : engine->calls) {
      if (!call.label.starts_with("assisted")) {
        EXPECT_EQ(call.window, std::nullopt);
      } else if (call.count && call.first_line > 0) {
        EXPECT_EQ(call.window, 5 + call.first_line / suite.options.batch_size);
      } else if (call.window) {
        ++timed;
        EXPECT_EQ(call.window, 5 + call.first_line / suite.options.batch_size);
      }
    }
    EXPECT_GT(timed, 3);
  }
}

TEST(EvaluationSuite, MeasurementsOfAnotherSuiteOrOfOtherDataAreNotTakenUp) {
  for (const bool data : {true, false}) {
    FakeSuite suite({"assisted"});
    suite.die_after(60);
    if (data) {
      write_file_atomic(suite.directory / "source", "7" + read_file(suite.directory / "source").substr(1));
    } else {
      suite.options.seed = 2;
    }
    FakeEngine other;
    suite.evaluate(other);
    FakeEngine fresh;
    suite.evaluate(fresh);
    EXPECT_EQ(other.decodes, fresh.decodes);
  }
}

TEST(EvaluationSuite, SettingsAreChosenOnOneTaskAndMeasuredOnTheOthers) {
  FakeSuite suite;
  suite.options.task = {suite.task("test"), suite.task("val")};
  SettingGrid bild = FakeSuite::run("bild");
  bild.lists[&DecodeOptions::fallback] = {0.3, 0.5, 0.7};
  bild.lists[&DecodeOptions::rollback] = {5};
  bild.choose_on = "val";
  bild.max_drop = {0, 30};
  suite.options.run = {bild, FakeSuite::run("assisted")};
  FakeEngine engine;
  // The lower the threshold, the faster and the worse: only 0.7 loses nothing.
  engine.errors = [](const Setting& run, int64_t line) {
    if (run.method() != "bild") return 0;
    if (run.decode.fallback < 0.4) return 5;
    return run.decode.fallback < 0.6 && line % 3 == 0 ? 1 : 0;
  };
  engine.seconds = [](const Setting& run, int64_t) {
    return run.method() == "bild" ? 0.04 + 0.05 * run.decode.fallback : 0.1;
  };
  const auto result = suite.evaluate(engine);
  const auto tasks = to_json(result.results).at("tasks");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks.at(0).at("name"), "val");
  EXPECT_EQ(tasks.at(0).at("runs").size(), 3U);  // the grid alone
  const auto strict = json_of(result, "bild.small.drop0", 1);
  EXPECT_DOUBLE_EQ(strict.at("params").at("fallback"), 0.7);
  EXPECT_EQ(strict.at("chosen").at("allowed"), true);
  const auto loose = json_of(result, "bild.small.drop30", 1);
  EXPECT_DOUBLE_EQ(loose.at("params").at("fallback"), 0.5);
  EXPECT_GT(loose.at("chosen").at("drop_there"), 0);
  json_of(result, "assisted.small", 1);
  EXPECT_EQ(tasks.at(1).at("runs").size(), 4U);  // A/A greedy, two that were chosen, assisted
}

// By tokens a second: window 4 takes the least time only because it writes half as much.
TEST(EvaluationSuite, LosslessSettingsAreChosenByTheirSpeedAloneWhereNothingIsScored) {
  FakeSuite suite;
  suite.options.task = {suite.task("test"), suite.task("val")};
  for (TaskOptions& task : suite.options.task) {
    task.references.clear();
    task.metric.name = "none";
  }
  SettingGrid run = FakeSuite::run("speculative");
  run.lists[&DecodeOptions::temperature] = {0};
  run.lists[&DecodeOptions::window] = {2, 3, 4};
  run.choose_on = "val";
  run.max_drop = {0};
  suite.options.run = {run};
  FakeEngine engine;
  engine.length = [](const Setting& setting, int64_t, size_t words) {
    return setting.decode.window == 4 ? words / 2 : words;
  };
  engine.seconds = [](const Setting& setting, int64_t) {
    return setting.decode.window == 4 ? 0.04 : setting.decode.window == 3 ? 0.05 : 0.1;
  };
  EXPECT_EQ(json_of(suite.evaluate(engine), "speculative.small.T0.drop0", 1).at("params").at("window"), 3);

  suite.options.run[0].lists[&DecodeOptions::temperature] = {1};
  EXPECT_EQ(json_of(suite.evaluate(engine), "speculative.small.T1.drop0", 1).at("params").at("window"), 3);

  suite.options.run[0] = FakeSuite::run("bild");  // loses quality
  suite.options.run[0].choose_on = "val";
  EXPECT_THROW(suite.evaluate(engine), UserError);
}

TEST(EvaluationSuite, LinesBeyondTimedCountForQualityOnly) {
  FakeSuite suite({"assisted"});
  suite.options.task[0].timed = 4;
  FakeEngine engine;
  const auto run = json_of(suite.evaluate(engine), "assisted.small");
  EXPECT_EQ(run.at("speed").at("lines"), 4);
  EXPECT_EQ(run.at("exactness").at("lines"), 24);
  EXPECT_EQ(engine.counted.at("assisted.small"), 24);
  EXPECT_EQ(engine.decodes, 3 * (2 + 24 + (4 + 2) * 3) + 24);  // two turns of two lines each; samples for alpha_forced
}

TEST(EvaluationSuite, MistakesAreFoundBeforeAnythingIsRunOrWritten) {
  FakeSuite suite;
  SettingGrid run = FakeSuite::run("bild");
  run.drafter = {"smal"};
  run.choose_on = "vall";
  suite.options.run = {run};
  FakeEngine engine;
  EXPECT_THAT(error_of([&] { suite.evaluate(engine); }), AllOf(HasSubstr("did you mean small?"), HasSubstr("vall")));
  EXPECT_EQ(engine.decodes, 0);
  EXPECT_FALSE(std::filesystem::exists(suite.directory / "out"));
}

}  // namespace
}  // namespace draftsmith::evaluate
