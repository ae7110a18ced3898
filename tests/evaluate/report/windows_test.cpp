// Grids over draft windows: the best window of each method and drafter, beside the latencies that theory gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/utf8.h"
#include "evaluate/report/report.h"
#include "evaluate/suite/tasks.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;
using testing::Not;

// Prompts without references, a grid over windows whose fastest is 4.
struct WindowSuite : FakeSuite {
  WindowSuite() {
    options.task[0].references.clear();
    options.task[0].metric.name = "none";
    options.run = {run("speculative")};
    options.run[0].lists[&DecodeOptions::temperature] = {0};
    options.run[0].lists[&DecodeOptions::window] = {1, 2, 4, 7};
    engine.seconds = [](const Setting& setting, int64_t) {
      if (!setting.decode.drafts()) return 0.1;
      return *setting.decode.window == 4 ? 0.05 : 0.08;
    };
  }
  FakeEngine engine;
};

TEST(WindowCurves, ThePromptsOfATaskNeedNoReferences) {
  WindowSuite suite;
  const auto result = suite.evaluate(suite.engine);
  const auto task = to_json(result.results).at("tasks").at(0);
  EXPECT_EQ(task.at("metric"), "none");
  EXPECT_TRUE(task.at("baseline").at("quality").empty());
  EXPECT_NEAR(task.at("runs").at(3).at("speed").at("speedup").get<double>(), 2, 1e-3);
  EXPECT_THAT(result.table, Not(HasSubstr("bleu")));
  EXPECT_THAT(read_file(suite.directory / "out/report.html"), Not(HasSubstr("Quality and speed")));
  EXPECT_THAT(read_file(suite.directory / "out/results.csv"), HasSubstr("test,,,,,greedy"));
}

TEST(WindowCurves, TheTableNamesTheBestWindow) {
  WindowSuite suite;
  const auto result = suite.evaluate(suite.engine);
  const auto begin = result.table.find("best window");
  ASSERT_NE(begin, std::string::npos) << result.table;
  const std::string table = result.table.substr(begin);
  EXPECT_THAT(table, testing::ContainsRegex("speculative T=0  small \\* +4 of 4 +0\\.800 +2\\.00"));
  EXPECT_LE(widest_line(table), 100u) << table;
  EXPECT_THAT(read_file(suite.directory / "out/report.html"), HasSubstr("<polyline"));
}

TEST(WindowCurves, ScalingIsTheRatioOfParameters) {
  WindowSuite suite;
  Results results = suite.evaluate(suite.engine).results;
  results.environment["parameters"] = {{"target", 5000}, {"small", 400}};
  EXPECT_THAT(results_table(results), HasSubstr("12.5x"));
}

TEST(WindowCurves, OneWindowIsNoCurve) {
  WindowSuite suite;
  suite.options.run[0].lists[&DecodeOptions::window] = {4};
  EXPECT_THAT(suite.evaluate(suite.engine).table, Not(HasSubstr("best window")));
}

TEST(PromptTasks, LinesMayBeSkippedAndDocumentsSeparated) {
  WindowSuite suite;
  TaskOptions task = suite.options.task[0];
  task.skip = 2;
  task.limit = 3;
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("8", "9", "10"));
  write_file_atomic(suite.directory / "source", "one\ntwo\n---\nthree\n");
  task = suite.options.task[0];
  task.separator = "---";
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("one\ntwo", "three"));
  write_file_atomic(suite.directory / "prompts.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n");
  task = suite.options.task[0];
  task.source.clear();
  task.jsonl = suite.directory / "prompts.jsonl";
  task.source_field = "text";
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("a b", "c"));
}

TEST(PromptTasks, NothingLossyIsChosenOnATaskWithoutAMetric) {
  WindowSuite suite;
  suite.options.run[0] = FakeSuite::run("bild");
  suite.options.run[0].choose_on = "test";
  EXPECT_THROW(suite.evaluate(suite.engine), UserError);
}

TEST(PromptTasks, MetricAndReferencesGoTogether) {
  const auto problem = [](const std::function<void(TaskOptions&)>& change) {
    WindowSuite suite;
    change(suite.options.task[0]);
    return error_of([&] { suite.evaluate(suite.engine); });
  };
  EXPECT_THAT(problem([](auto& task) { task.metric.name = "bleu"; }), HasSubstr("metric = { name = \"none\" }"));
  EXPECT_THAT(problem([](auto& task) { task.references = {"x"}; }), HasSubstr("scores nothing"));
  EXPECT_THAT(problem([](auto& task) {
                task.ids = true;
                task.suffix = "x";
              }),
              HasSubstr("ids are taken as they are"));
  EXPECT_THAT(problem([](auto& task) { task.skip = 99; }), HasSubstr("no line after `skip`"));
  EXPECT_EQ(problem([](auto&) {}), "no error");
}

}  // namespace
}  // namespace draftsmith::evaluate
