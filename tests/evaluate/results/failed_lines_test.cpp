// Lines that a setting cannot decode: the suite fails after everything is written, and nothing else is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An engine whose assisted setting fails on lines 3 and 19, and which takes half of the baseline's time on others.
FakeEngine failing_engine() {
  FakeEngine engine;
  engine.fails = [](const Setting& run, int64_t line) { return run.method() == "assisted" && line % 16 == 3; };
  return engine;
}

TEST(FailedLines, FailTheSuiteAfterAllResultsAreWritten) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted"), FakeSuite::run("bild")};
  FakeEngine engine = failing_engine();
  const SuiteResult result = suite.evaluate(engine);
  const std::string message = error_of<RunError>([&] { throw_if_failed(result); });
  EXPECT_THAT(message, AllOf(HasSubstr("run assisted.small, line 4"), HasSubstr("the logits are no numbers"),
                             HasSubstr("2 lines without one")));
  const auto task = load_json(suite.directory / "out/results.json").at("tasks").at(0);
  const auto& failed = task.at("runs").at(1);
  EXPECT_EQ(failed.at("failed_lines").at("lines"), 2);
  EXPECT_EQ(failed.at("failed_lines").at("first"), 3);
  EXPECT_EQ(load_results(suite.directory / "out/results.json").tasks[0].find("assisted.small")->failed_lines->lines, 2);
  EXPECT_FALSE(task.at("runs").at(2).contains("failed_lines"));
  EXPECT_THAT(result.table, HasSubstr("! assisted.small: 2 lines failed (first line 4: the logits are no numbers)"));
  EXPECT_THAT(read_file(suite.directory / "out/results.csv"), HasSubstr("failed_lines"));
  EXPECT_THAT(read_file(suite.directory / "out/lines.jsonl"), HasSubstr("\"failure\":\"the logits are no numbers\""));
}

TEST(FailedLines, AreEmptyInScoresAndLeftOutOfSpeedsAndCounts) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine = failing_engine();
  engine.seconds = [](const Setting& run, int64_t line) {
    return line % 16 == 3 ? 1000.0 : run.decode.drafts() ? 0.05 : 0.1;
  };
  const SuiteResult result = suite.evaluate(engine);
  const SettingResult& failed = *result.results.tasks[0].find("assisted.small");
  EXPECT_EQ(failed.speed.lines, 22);
  EXPECT_NEAR(failed.speed.speedup.value, 2, 1e-9);
  EXPECT_LT(failed.quality.scores.front().value, 100);
  // Lines without output are neither counted as different from greedy decoding nor as target runs.
  EXPECT_EQ(failed.exactness->differing_lines, 0);
  EXPECT_EQ(failed.lossless_check, true);
  int64_t tokens = 0;
  for (int64_t line = 0; line < 24; ++line) tokens += line % 16 == 3 ? 0 : 6 + line % 8;
  EXPECT_EQ(failed.acceptance.tokens, tokens);
  EXPECT_DOUBLE_EQ(failed.acceptance.draft_runs_per_output, static_cast<double>(tokens) / 22);
}

TEST(FailedLines, AreKnownToAnInterruptedEvaluationThatGoesOn) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  suite.options.repetitions = 1;
  FakeEngine first = failing_engine();
  first.fail_after = 20;  // the counting pass begins with this setting
  EXPECT_THROW(suite.evaluate(first), FakeEngine::Killed);
  FakeEngine second = failing_engine();
  const SuiteResult result = suite.evaluate(second);
  EXPECT_LT(second.counted.at("assisted.small"), 24);
  EXPECT_EQ(result.results.tasks[0].find("assisted.small")->failed_lines->lines, 2);
}

TEST(FailedLines, EverySettingMayFailOnAllLines) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted"), FakeSuite::run("bild")};
  suite.options.forced_lines = 5;
  FakeEngine engine;
  engine.fails = [](const Setting&, int64_t) { return true; };
  const SuiteResult result = suite.evaluate(engine);
  EXPECT_EQ(result.failures.size(), 4U);  // the baseline, its repetition and two settings
}

TEST_F(ModelSuite, ALineWithoutFiniteLogitsFailsAlone) {
  // In half precision, the embedding of an id that only the last line has is infinite.
  const model::TransformerModel broken(model::t5_config({.decoder_layers = 3}), 1);
  broken.parameters().at("embedding.weight")[25].fill_(3e38);
  model::save_model(root_ / "broken", broken);
  options_.dtype = "fp16";
  add_run("assisted", "small");
  const SuiteResult sound = run_evaluation(options_, root_ / "sound", {.quiet = true});
  options_.model = root_ / "broken";
  const SuiteResult result = run_evaluation(options_, root_ / "out", {.quiet = true});
  EXPECT_THAT(error_of<RunError>([&] { throw_if_failed(result); }), HasSubstr("not finite"));
  for (const std::string name : {"greedy", "assisted.small"}) {
    SCOPED_TRACE(name);
    const SettingResult& failed = *result.results.tasks[0].find(name);
    ASSERT_TRUE(failed.failed_lines.has_value());
    const std::string outputs = read_file(root_ / "out" / failed.hypotheses);
    const std::string expected = read_file(root_ / "sound" / failed.hypotheses);
    // Other lines fail only where the model writes that id.
    EXPECT_EQ(outputs.substr(0, outputs.find('\n')), expected.substr(0, expected.find('\n')));
    EXPECT_TRUE(outputs.ends_with("\n\n"));
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
