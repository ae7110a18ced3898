// What is wrong with methods inside the model in a suite, found before anything is loaded.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

SettingGrid bare_run(const std::string& method) {
  SettingGrid run;
  run.decode.method = method;
  return run;
}

TEST(InsideChecks, OptionsThatTheMethodDoesNotReadAreErrors) {
  SuiteOptions options;
  options.model = "target";
  options.task.resize(1);
  options.task[0].name = "val";
  options.task[0].source = "val.src";
  options.task[0].references = {"val.tgt"};
  const auto problems_of = [&](const SettingGrid& run) {
    options.run = {run};
    Problems problems;
    validate_options(options, "", problems);
    std::string text;
    for (const Problem& problem : problems.list()) text += to_string(problem) + "\n";
    return text;
  };
  EXPECT_EQ(problems_of(bare_run("early-exit")), "");
  SettingGrid exits = bare_run("greedy");
  exits.decode.exits = "heads";
  EXPECT_THAT(problems_of(exits), HasSubstr("run[0].exits: this run does not read"));
  exits.decode.method = "assisted";
  exits.drafter = {"small"};
  options.drafter = {{"small", "small"}};
  EXPECT_THAT(problems_of(exits), HasSubstr("run[0].exits"));
  options.drafter = {{.name = "small", .exit = 2}};
  EXPECT_EQ(problems_of(exits), "");
  exits.decode.router = "router";
  exits.decode.window_rule = "router";
  EXPECT_THAT(problems_of(exits), HasSubstr("a router is trained for a drafter that is a model of its own"));
  exits.decode.method = "early-exit";
  exits.drafter.clear();
  EXPECT_THAT(problems_of(exits), HasSubstr(":    early-exit"));
  options.drafter.clear();
  SettingGrid run = bare_run("calm");
  run.lists[&DecodeOptions::candidates] = {3};
  EXPECT_THAT(problems_of(run), HasSubstr("candidates"));
  run = bare_run("calm");
  run.lists[&DecodeOptions::exit_threshold] = {1.5};
  EXPECT_THAT(problems_of(run), HasSubstr("exit_threshold"));
  run = bare_run("early-exit");
  run.drafter = {"small"};
  options.drafter = {{"small", "small"}};
  EXPECT_THAT(problems_of(run), HasSubstr("no drafter, for method early-exit"));
  options.drafter = {{.name = "two", .model = "small", .exit = 2}};
  EXPECT_THAT(problems_of(bare_run("greedy")), HasSubstr("the drafter must be given in one way"));
  options.drafter.clear();
  options.match_rates.resize(2);
  options.match_rates[0].model = "nobody";
  EXPECT_THAT(problems_of(bare_run("greedy")),
              testing::AllOf(HasSubstr("match_rates.model"), HasSubstr("a name each")));
}

std::string match_problems(const std::function<void(MatchRateTable&)>& change) {
  MatchRateTable rates;
  change(rates);
  Problems problems;
  validate_options(rates, "match_rates[0]", problems);
  std::string text;
  for (const Problem& problem : problems.list()) text += to_string(problem) + "\n";
  return text;
}

TEST(InsideChecks, MatchRatesOfNothingOrOfOneThingTwiceAreErrors) {
  EXPECT_EQ(match_problems([](auto& rates) { rates.layers = {2, 4}; }), "");
  EXPECT_THAT(match_problems([](auto& rates) { rates.layers = {4, 2}; }), HasSubstr("match_rates[0].layers"));
  EXPECT_THAT(match_problems([](auto& rates) { rates.layers = {2, 2}; }), HasSubstr("twice or out of order"));
  EXPECT_THAT(match_problems([](auto& rates) { rates.decoding.clear(); }), HasSubstr("match_rates[0].decoding"));
  EXPECT_THAT(match_problems([](auto& rates) { rates.candidates.clear(); }), HasSubstr("nothing to count"));
  EXPECT_THAT(match_problems([](auto& rates) { rates.candidates = {3, 3}; }), HasSubstr("given twice"));
}

// Its measurements would be taken for the other's.
TEST(InsideChecks, ADrafterIsNotNamedLikeOtherLayersThatDraft) {
  SuiteOptions options;
  options.model = "target";
  options.task.resize(1);
  options.task[0].name = "val";
  options.task[0].source = "val.src";
  options.task[0].references = {"val.tgt"};
  options.run = {bare_run("early-exit"), bare_run("assisted")};
  options.run[0].lists[&DecodeOptions::exit_layer] = {2};
  options.run[1].drafter = {"exit2"};
  const auto clash = [&](int64_t exit) {
    options.drafter = {{.name = "exit2", .exit = exit}};
    Problems problems;
    validate_options(options, "", problems);
    return problems.list().empty() ? "" : to_string(problems.list().front());
  };
  EXPECT_EQ(clash(2), "");
  EXPECT_THAT(clash(1), testing::AllOf(HasSubstr("two things that draft"), HasSubstr("exit2")));
}

}  // namespace
}  // namespace draftsmith::evaluate
