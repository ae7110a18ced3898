// What is found wrong in a suite before anything is loaded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A suite with a task and a drafter "a", and what its checks say of a run.
SuiteOptions checked_suite(std::vector<SettingGrid> runs) {
  SuiteOptions options;
  options.model = "target";
  options.drafter = {{"a", "small"}};
  TaskOptions task;
  task.name = "val";
  task.source = "val.src";
  task.references = {"val.tgt"};
  options.task = {task};
  options.run = std::move(runs);
  return options;
}

std::string problems_of(const SuiteOptions& options) {
  Problems problems;
  validate_options(options, "", problems);
  std::string text;
  for (const Problem& problem : problems.list()) text += to_string(problem) + "\n";
  return text;
}

SettingGrid drafted_run(const std::string& method, std::vector<std::string> drafter = {"a"}) {
  SettingGrid run;
  run.decode.method = method;
  run.drafter = std::move(drafter);
  return run;
}

TEST(EvaluationChecks, RunsThatCannotWorkAreErrorsOfTheSuite) {
  EXPECT_EQ(problems_of(checked_suite({drafted_run("assisted"), drafted_run("greedy", {})})), "");
  EXPECT_THAT(problems_of(checked_suite({drafted_run("asisted")})), HasSubstr("did you mean 'assisted'?"));
  EXPECT_THAT(problems_of(checked_suite({drafted_run("bild", {})})), HasSubstr("a drafter, for method bild"));
  EXPECT_THAT(problems_of(checked_suite({drafted_run("greedy")})), HasSubstr("no drafter, for method greedy"));
  EXPECT_THAT(problems_of(checked_suite({drafted_run("assisted"), drafted_run("assisted")})),
              HasSubstr("the same name"));
  SettingGrid run = drafted_run("assisted");
  run.lists[&DecodeOptions::temperature] = {1};
  EXPECT_THAT(problems_of(checked_suite({run})), HasSubstr("samples nothing"));
  run = drafted_run("speculative");
  run.decode.acceptance = "exact";
  EXPECT_THAT(problems_of(checked_suite({run})), HasSubstr("which is not sampling"));
  run = drafted_run("bild");
  run.decode.window_rule = "fixd";
  EXPECT_THAT(problems_of(checked_suite({run})), HasSubstr("did you mean 'fixed'?"));
}

TEST(EvaluationChecks, SettingsAreNotChosenOnTheLinesTheyAreReportedOn) {
  SettingGrid run = drafted_run("bild");
  run.choose_on = "val";
  SuiteOptions options = checked_suite({run});
  options.task.push_back(options.task.front());
  options.task.back().name = "test";
  options.task.back().source = "./val.src";
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("task[1]"), HasSubstr("the lines on which settings are chosen"),
                                          HasSubstr("other lines than those of task val")));
  options.task.front().limit = 20;
  EXPECT_THAT(problems_of(options), HasSubstr("are reported on"));
  options.task.back().skip = 20;
  EXPECT_EQ(problems_of(options), "");
  options.task.back().skip = 0;
  options.run[0].choose_on = "";  // nothing is chosen
  EXPECT_EQ(problems_of(options), "");
}

TEST(EvaluationChecks, IdsAreNotScoredByCharacters) {
  SuiteOptions options = checked_suite({});
  options.task.front().metric.name = "chrf";
  EXPECT_EQ(problems_of(options), "");
  options.task.front().ids = true;
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("task[0].metric"), HasSubstr("ids have no characters")));
}

TEST(EvaluationChecks, OptionsThatARunDoesNotReadAreNeitherLabelsNorGrids) {
  const auto problems = [](void (*set)(SettingGrid&), const std::string& method) {
    SettingGrid run =
        drafted_run(method, method == "greedy" ? std::vector<std::string>{} : std::vector<std::string>{"a"});
    set(run);
    return problems_of(checked_suite({run}));
  };
  EXPECT_THAT(problems(
                  [](auto& run) {
                    run.lists[&DecodeOptions::threshold] = {0.3, 0.5};
                  },
                  "speculative"),
              AllOf(HasSubstr("run[0].threshold"), HasSubstr("window_rule router"), HasSubstr("window_rule fixed")));
  EXPECT_THAT(problems(
                  [](auto& run) {
                    run.lists[&DecodeOptions::max_entropy] = {1, 2};
                  },
                  "assisted"),
              HasSubstr("run[0].max_entropy"));
  EXPECT_THAT(problems([](auto& run) { run.decode.free_token = false; }, "assisted"),
              AllOf(HasSubstr("run[0].free_token"), HasSubstr("acceptance accept_all")));
  EXPECT_THAT(problems([](auto& run) { run.lists[&DecodeOptions::fallback] = {0.5}; }, "speculative"),
              HasSubstr("run[0].fallback"));
  EXPECT_THAT(problems([](auto& run) { run.lists[&DecodeOptions::max_draft] = {5}; }, "assisted"),
              HasSubstr("run[0].max_draft"));
  EXPECT_THAT(problems([](auto& run) { run.lists[&DecodeOptions::rollback] = {5}; }, "speculative"),
              HasSubstr("run[0].rollback"));
  EXPECT_THAT(problems([](auto& run) { run.lists[&DecodeOptions::window] = {5}; }, "bild"), HasSubstr("run[0].window"));
  EXPECT_THAT(problems([](auto& run) { run.lists[&DecodeOptions::window] = {5}; }, "greedy"),
              HasSubstr("method greedy"));
  EXPECT_EQ(problems(
                [](auto& run) {
                  run.lists[&DecodeOptions::fallback] = run.lists[&DecodeOptions::rollback] = {0.5, 2};
                },
                "bild"),
            "");
  EXPECT_EQ(problems(
                [](auto& run) {
                  run.lists[&DecodeOptions::schedule] = {"constant"}, run.lists[&DecodeOptions::confidence] = {0.5};
                },
                "assisted"),
            "");
}

TEST(EvaluationChecks, AMistakeOfAWholeGridIsToldOnce) {
  SettingGrid run = drafted_run("assisted");
  run.lists[&DecodeOptions::temperature] = {1};
  run.lists[&DecodeOptions::window] = {3, 4, 5};
  Problems problems;
  validate_options(checked_suite({run}), "", problems);
  EXPECT_EQ(problems.list().size(), 1U);
}

TEST(EvaluationChecks, NoDrafterTakesTheTargetsName) {
  SuiteOptions options = checked_suite({});
  options.drafter = {{"target", "small"}};
  EXPECT_THAT(problems_of(options), HasSubstr("another name"));
}

TEST(EvaluationChecks, ADrafterIsAModelATableOrLookup) {
  SuiteOptions options = checked_suite({drafted_run("assisted")});
  options.drafter = {{.name = "a", .ngram = "n.h5"}};
  EXPECT_EQ(problems_of(options), "");
  options.drafter = {{.name = "a", .lookup = true}};
  EXPECT_EQ(problems_of(options), "");
  options.drafter = {{.name = "a"}};
  EXPECT_THAT(problems_of(options), HasSubstr("none of them"));
  options.drafter = {{.name = "a", .model = "small", .lookup = true}};
  EXPECT_THAT(problems_of(options), HasSubstr("several of them"));
  options.drafter = {{.name = "a", .lookup = true, .longest = 0}};
  EXPECT_THAT(problems_of(options), HasSubstr("longest"));
}

TEST(EvaluationChecks, LookupNeitherDecodesAloneNorKnowsConfidence) {
  SuiteOptions options = checked_suite({drafted_run("bild")});
  options.drafter = {{.name = "a", .lookup = true}};
  EXPECT_THAT(problems_of(options), HasSubstr("a drafter whose probabilities say how sure it is"));
  SettingGrid alone = drafted_run("greedy", {});
  alone.model = "a";
  options.run = {alone};
  EXPECT_THAT(problems_of(options), HasSubstr("run[0].model"));
}

TEST(EvaluationChecks, RunsOfOneGroupChooseAlike) {
  SettingGrid first = drafted_run("bild");
  first.lists[&DecodeOptions::fallback] = {0.5};
  first.choose_on = "val";
  SettingGrid second = first;
  second.lists[&DecodeOptions::fallback] = {0.7};
  EXPECT_EQ(problems_of(checked_suite({first, second})), "");
  second.max_drop = {2};
  EXPECT_THAT(problems_of(checked_suite({first, second})), HasSubstr("choose in different ways"));
  second.name = "other";
  EXPECT_EQ(problems_of(checked_suite({first, second})), "");
  second.max_drop = {};
  EXPECT_THAT(problems_of(checked_suite({second})), HasSubstr("max_drop"));
  second.max_drop = {1, 1};
  EXPECT_THAT(problems_of(checked_suite({second})), HasSubstr("the same name"));
}

TEST(EvaluationChecks, TasksDifferInTheNamesOfTheirFiles) {
  SuiteOptions options = checked_suite({});
  options.task.push_back(options.task[0]);
  options.task[0].name = "made up";
  options.task[1].name = "made/up";
  EXPECT_THAT(problems_of(options), HasSubstr("made_up"));
}

}  // namespace
}  // namespace draftsmith::evaluate
