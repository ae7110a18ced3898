// What is found wrong in a suite before anything is loaded.
#include <functional>

#include <gmock/gmock.h>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

// A suite with a task and a drafter "a", and what its checks say of a run.
SuiteOptions checked_suite(std::vector<SettingGrid> runs) {
  SuiteOptions options;
  options.model = "target";
  options.drafter = {{"a", "small"}};
  TaskOptions task{.name = "val", .source = "val.src", .references = {"val.tgt"}};
  options.task = {task};
  options.run = std::move(runs);
  return options;
}

std::string problems_of(const SuiteOptions& options) {
  return option_problems(options);
}

SettingGrid drafted_run(const std::string& method, std::vector<std::string> drafter = {"a"}) {
  SettingGrid run;
  run.decode.method = method;
  run.drafter = std::move(drafter);
  return run;
}

// A method, what is changed of its run, and what is said of it; nothing: it can work.
struct CheckedRun {
  const char* method;
  std::function<void(SettingGrid&)> change;
  std::vector<std::string> problems;
};

void expect_problems(const std::vector<CheckedRun>& runs) {
  for (const CheckedRun& one : runs) {
    const bool drafts = std::string(one.method) != "greedy" && std::string(one.method) != "calm" &&
                        std::string(one.method) != "early-exit";
    SettingGrid run = drafted_run(one.method, drafts ? std::vector<std::string>{"a"} : std::vector<std::string>{});
    one.change(run);
    const std::string found = problems_of(checked_suite({run}));
    EXPECT_EQ(found.empty(), one.problems.empty()) << one.method << "\n" << found;
    for (const std::string& problem : one.problems) EXPECT_THAT(found, HasSubstr(problem)) << one.method;
  }
}

TEST(EvaluationChecks, RunsThatCannotWorkAreErrorsOfTheSuite) {
  expect_problems({
      {"assisted", [](auto&) {}, {}},
      {"greedy", [](auto&) {}, {}},
      {"early-exit", [](auto&) {}, {}},
      {"asisted", [](auto&) {}, {"did you mean 'assisted'?"}},
      {"bild", [](auto& run) { run.drafter.clear(); }, {"a drafter, for method bild"}},
      {"tandem", [](auto&) {}, {"tandem = its directory"}},
      {"greedy", [](auto& run) { run.drafter = {"a"}; }, {"no drafter, for method greedy"}},
      {"early-exit", [](auto& run) { run.drafter = {"a"}; }, {"no drafter, for method early-exit"}},
      {"assisted", [](auto& run) { run.lists[&DecodeOptions::temperature] = {1}; }, {"samples nothing"}},
      {"speculative", [](auto& run) { run.decode.acceptance = "exact"; }, {"which is not sampling"}},
      {"bild", [](auto& run) { run.decode.window_rule = "fixd"; }, {"did you mean 'fixed'?"}},
      {"calm", [](auto& run) { run.lists[&DecodeOptions::exit_threshold] = {1.5}; }, {"exit_threshold"}},
  });
  EXPECT_THAT(problems_of(checked_suite({drafted_run("assisted"), drafted_run("assisted")})),
              HasSubstr("the same name"));
}

TEST(EvaluationChecks, APrecisionIsAShareThatTimedLinesCanGive) {
  SuiteOptions options = checked_suite({drafted_run("assisted")});
  for (const double wrong : {0.0, -0.1, 1.5}) {
    options.precision = wrong;
    EXPECT_THAT(problems_of(options), AllOf(HasSubstr("precision"), HasSubstr("above 0, at most 1"))) << wrong;
  }
  options.precision = 0.03;
  EXPECT_EQ(problems_of(options), "");
  options.task[0].timed = 1;
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("task[0].timed"), HasSubstr("at least 2 timed lines")));
  options.precision.reset();
  options.max_minutes = 0;
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("max_minutes"), HasSubstr("above 0")));
  options.max_minutes = 5;
  options.spread_minutes = 30;
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("at least 4 repetitions"), HasSubstr("at least spread_minutes")));
}

// Finished stages of suites without the keys stay finished.
TEST(EvaluationChecks, PrecisionAndMinutesIdentifyASuiteOnlyWhereTheyAreGiven) {
  SuiteOptions options = checked_suite({drafted_run("assisted")});
  EXPECT_FALSE(options_identity(options).contains("precision"));
  EXPECT_FALSE(options_identity(options).contains("max_minutes"));
  EXPECT_FALSE(options_identity(options).contains("spread_minutes"));
  const std::string without = options_hash(options);
  options.precision = 0.03;
  EXPECT_NE(options_hash(options), without);
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
  const SuiteOptions apart = options;
  options.task.back().skip = 0;
  options.run[0].choose_on = "";  // nothing is chosen
  EXPECT_EQ(problems_of(options), "");
  options = apart;
  for (TaskOptions& task : options.task) {
    task.source.clear();
    task.references.clear();
    task.jsonl = "val.jsonl";
  }
  options.task.front().categories = {"qa"};  // whose first 20 lines are anywhere
  EXPECT_THAT(problems_of(options), HasSubstr("are reported on"));
  options.task.back().categories = {"rag"};
  EXPECT_THAT(problems_of(options), ::testing::Not(HasSubstr("are reported on")));
}

TEST(EvaluationChecks, OptionsThatARunDoesNotReadAreNeitherLabelsNorGrids) {
  expect_problems({
      {"speculative",
       [](auto& run) {
         run.lists[&DecodeOptions::threshold] = {0.3, 0.5};
       },
       {"run[0].threshold", "window_rule router", "window_rule fixed"}},
      {"assisted",
       [](auto& run) {
         run.lists[&DecodeOptions::max_entropy] = {1, 2};
       },
       {"run[0].max_entropy"}},
      {"assisted", [](auto& run) { run.decode.free_token = false; }, {"run[0].free_token", "acceptance accept_all"}},
      {"speculative", [](auto& run) { run.lists[&DecodeOptions::fallback] = {0.5}; }, {"run[0].fallback"}},
      {"bild", [](auto& run) { run.lists[&DecodeOptions::window] = {5}; }, {"run[0].window"}},
      {"greedy", [](auto& run) { run.lists[&DecodeOptions::window] = {5}; }, {"method greedy"}},
      {"greedy", [](auto& run) { run.decode.exits = "heads"; }, {"run[0].exits: this run does not read"}},
      {"assisted", [](auto& run) { run.decode.exits = "heads"; }, {"run[0].exits"}},
      {"calm", [](auto& run) { run.lists[&DecodeOptions::candidates] = {3}; }, {"candidates"}},
      {"bild",
       [](auto& run) {
         run.lists[&DecodeOptions::rollback] = {0.5, 2};
       },
       {}},
      {"assisted", [](auto& run) { run.lists[&DecodeOptions::confidence] = {0.5}; }, {}},
  });
}

TEST(EvaluationChecks, DraftersHaveNamesOfTheirOwn) {
  SuiteOptions options = checked_suite({});
  options.drafter = {{"target", "small"}};
  EXPECT_THAT(problems_of(options), HasSubstr("another name"));
  // Measurements of a drafter that is named like other layers would be taken for theirs.
  options.run = {drafted_run("early-exit", {}), drafted_run("assisted", {"exit2"})};
  options.run[0].lists[&DecodeOptions::exit_layer] = {2};
  options.drafter = {{.name = "exit2", .exit = 2}};
  EXPECT_EQ(problems_of(options), "");
  options.drafter = {{.name = "exit2", .exit = 1}};
  EXPECT_THAT(problems_of(options), AllOf(HasSubstr("two things that draft"), HasSubstr("exit2")));
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

TEST(EvaluationChecks, LookupStandsBeforeDraftersThatNeedNotSeeEveryToken) {
  SettingGrid run = drafted_run("assisted");
  run.lists[&DecodeOptions::lookup] = {0, 2};
  SuiteOptions options = checked_suite({run});
  for (const auto& [drafter, expected] : std::vector<std::pair<infer::DrafterOptions, const char*>>{
           {{.name = "a", .ngram = "n.h5"}, ""},
           {{.name = "a", .lookup = true}, "this drafter is look-up itself"},
           {{.name = "a", .exit = 1}, "layers of the model draft"}}) {
    options.drafter = {drafter};
    EXPECT_THAT(problems_of(options), HasSubstr(expected));
    EXPECT_EQ(problems_of(options).empty(), *expected == 0) << problems_of(options);
  }
  options.drafter = {{.name = "a", .model = "small"}};
  for (const char* rule : {"router", "oracle"}) {
    options.run[0].decode.window_rule = rule;
    EXPECT_THAT(problems_of(options), HasSubstr("is made for the drafter's own tokens")) << rule;
  }
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

TEST(EvaluationChecks, ExitsAreReadByDraftersOfThem) {
  SettingGrid run = drafted_run("assisted");
  run.decode.exits = "heads";
  SuiteOptions options = checked_suite({run});
  options.drafter = {{.name = "a", .exit = 2}};
  EXPECT_EQ(problems_of(options), "");
  options.run[0].decode.router = "router";
  options.run[0].decode.window_rule = "router";
  EXPECT_THAT(problems_of(options), HasSubstr("a router is trained for a drafter that is a model of its own"));
  options.drafter = {{.name = "a", .model = "small", .exit = 2}};
  EXPECT_THAT(problems_of(options), HasSubstr("the drafter must be given in one way"));
  options = checked_suite({drafted_run("assisted")});
  options.drafter = {{.name = "a", .exit = 2}};
  options.match_rates.resize(1);
  options.match_rates[0].model = "nobody";
  EXPECT_THAT(problems_of(options), HasSubstr("match_rates.model"));
}

TEST(EvaluationChecks, MatchRatesOfNothingOrOfLayersOutOfOrderAreErrors) {
  SuiteOptions options = checked_suite({});
  MatchRateTable& rates = options.match_rates.emplace_back();
  rates.layers = {2, 4};
  EXPECT_EQ(problems_of(options), "");
  rates.layers = {2, 2};
  EXPECT_THAT(problems_of(options), HasSubstr("match_rates[0].layers"));
}

}  // namespace
}  // namespace draftsmith::evaluate
