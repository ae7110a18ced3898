// Suites whose methods work inside the model, on real model directories.

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/files.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// Exits that are no more than the model's own final norm and head.
void write_exits(const std::filesystem::path& directory, const std::filesystem::path& of, int64_t layer) {
  const auto model = model::load_model(of, {.pack = false});
  model::ExitConfig config;
  config.exits = {{.layer = layer, .head = model::ExitHead::kFull}};
  model::Exits exits(config, *model, 1);
  exits.bind(of.string(), model::model_hash(of));
  model::save_exits(directory, exits);
}

// One more drafter: "exit2", the first two of the target's three layers, which are four in the model "deep".
class InsideSuite : public ModelSuite {
 protected:
  void SetUp() override {
    ModelSuite::SetUp();
    write_model(root_ / "deep", 4, 3);
    options_.drafter.push_back({.name = "deep", .model = root_ / "deep"});
    options_.drafter.push_back({.name = "exit2", .exit = 2});
  }

  SettingGrid& add_inside(const std::string& method, const std::string& model = "target") {
    SettingGrid& run = add_run(method, "");
    run.model = model;
    return run;
  }

  static void expect_greedy_ids(const ordered_json& run) {
    EXPECT_EQ(run.at("exactness").at("lossless"), true) << run.at("name");
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << run.at("name");
    EXPECT_GT(run.at("speed").at("speedup_decode_bound"), 0) << run.at("name");
  }
};

TEST_F(InsideSuite, LosslessMethodsGiveTheGreedyIdsAndSayWhatLayersRan) {
  SettingGrid& exit = add_inside("early-exit");
  exit.decode.acceptance = "exact";
  exit.lists[&DecodeOptions::exit_layer] = {1, 2};
  add_run("assisted", "exit2");
  SettingGrid& ppd = add_inside("ppd");
  ppd.lists[&DecodeOptions::candidates] = {1, 3};
  ppd.lists[&DecodeOptions::early_layer] = {2};
  const auto results = run_suite();
  for (const char* name :
       {"early-exit.FB0.5.exact.exit1", "early-exit.FB0.5.exact.exit2", "assisted.exit2", "ppd.d2.k1", "ppd.d2.k3"}) {
    const auto run = find(results, name);
    expect_greedy_ids(run);
    EXPECT_EQ(run.at("inside").at("layers"), 3) << name;
    EXPECT_GE(run.at("inside").at("layer_runs_per_token"), 3) << name;
    EXPECT_GT(run.at("inside").at("path_per_token"), 0) << name;
  }
  EXPECT_EQ(find(results, "assisted.exit2").at("inside").at("exit_layer"), 2);
  const auto inside = find(results, "ppd.d2.k3").at("inside");
  EXPECT_EQ(inside.at("early_layer"), 2);
  EXPECT_EQ(inside.at("candidates"), 3);
  EXPECT_GE(inside.at("match_rate"), 0);
  EXPECT_GT(inside.at("units_in_use"), 1);
  EXPECT_GE(inside.at("theorem").at("speedup"), 1);
  EXPECT_NEAR(inside.at("path_per_token").get<double>(), 3 / inside.at("theorem").at("speedup").get<double>(), 1e-9);
}

TEST_F(InsideSuite, PpdSamplesWithTheModelsDistribution) {
  SettingGrid& ppd = add_inside("ppd");
  ppd.lists[&DecodeOptions::temperature] = {1};
  ppd.lists[&DecodeOptions::top_k] = {5};
  ppd.lists[&DecodeOptions::num_samples] = {4};
  ppd.lists[&DecodeOptions::early_layer] = {2};
  const auto results = run_suite();
  const auto run = find(results, "ppd.T1.top_k5.d2.k3.samples4");
  EXPECT_EQ(run.at("baseline"), "sample.T1.top_k5.samples4");
  EXPECT_EQ(run.at("first_tokens").at("tokens"), 10 * 4);
  EXPECT_EQ(run.at("first_tokens").at("passed"), true);
  EXPECT_GT(run.at("inside").at("match_rate"), 0);
  EXPECT_GE(run.at("inside").at("theorem").at("speedup"), 1);
}

TEST_F(InsideSuite, RunsOnAnotherModelMustEqualItsOwnGreedyDecoding) {
  SettingGrid& ppd = add_inside("ppd", "deep");
  ppd.lists[&DecodeOptions::early_layer] = {2};
  SettingGrid& assisted = add_run("assisted", "exit2");
  assisted.model = "deep";
  const auto results = run_suite();
  const auto greedy = find(results, "greedy.deep");
  for (const char* name : {"ppd.deep.d2.k3", "assisted.deep.exit2"}) {
    const auto run = find(results, name);
    expect_greedy_ids(run);
    EXPECT_EQ(read_file(root_ / "out" / run.at("hypotheses").get<std::string>()),
              read_file(root_ / "out" / greedy.at("hypotheses").get<std::string>()));
    EXPECT_EQ(run.at("baseline"), "greedy");
  }
  const auto& task = results.at("tasks").at(0);
  EXPECT_TRUE(task.at("drafters").contains("deep/exit2"));
  EXPECT_TRUE(task.at("prediction").at("models").contains("deep"));
}

TEST_F(InsideSuite, CalmSaysWhereTokensLeft) {
  SettingGrid& calm = add_inside("calm");
  calm.lists[&DecodeOptions::exit_measure] = {"saturation", "margin"};
  calm.lists[&DecodeOptions::exit_threshold] = {0, 1};
  calm.lists[&DecodeOptions::exit_decay] = {0};
  const auto results = run_suite();
  const auto all = find(results, "calm.margin.lambda1.temp0");
  EXPECT_DOUBLE_EQ(all.at("inside").at("average_exit_layer"), 3);
  EXPECT_EQ(all.at("exactness").at("differing_lines"), 0);
  EXPECT_EQ(all.at("exactness").at("lossless"), false);
  EXPECT_DOUBLE_EQ(all.at("speed").at("speedup_decode_bound"), 1);
  int64_t tokens = 0;
  for (const auto& count : all.at("inside").at("exit_histogram")) tokens += count.get<int64_t>();
  EXPECT_EQ(tokens, all.at("acceptance").at("tokens"));
  const auto early = find(results, "calm.margin.lambda0.temp0");
  EXPECT_LT(early.at("inside").at("average_exit_layer"), 3);
  EXPECT_NEAR(early.at("speed").at("speedup_decode_bound").get<double>(),
              3 / early.at("inside").at("average_exit_layer").get<double>(), 1e-9);
}

TEST_F(InsideSuite, WindowsOfExitsOfAnotherModelMakeACurve) {
  SettingGrid& run = add_inside("early-exit", "deep");
  run.decode.window_rule = "fixed";
  run.decode.acceptance = "exact";
  run.lists[&DecodeOptions::exit_layer] = {1, 2};
  run.lists[&DecodeOptions::window] = {2, 3};
  const auto result = run_evaluation(options_, root_ / "out", {.quiet = true});
  EXPECT_EQ(find(to_json(result.results), "early-exit.deep.G2.fixed.exact.exit2").at("drafting"), "deep/exit2");
  for (const char* line : {"early-exit [^\n]*deep/exit1( \\*)? +[23] ", "early-exit [^\n]*deep/exit2( \\*)? +[23] "}) {
    EXPECT_THAT(result.table, testing::ContainsRegex(line));
  }
}

// Step costs and alpha_forced are of outputs of the model that decodes.
TEST_F(InsideSuite, SamplingRunsOfAnotherModelBringItsGreedyDecoding) {
  SettingGrid& run = add_run("speculative", "exit2");
  run.model = "deep";
  options_.drafter.push_back({.name = "exit4", .exit = 4});
  SettingGrid& all = add_run("speculative", "exit4");
  all.model = "deep";
  const auto results = run_suite();
  find(results, "greedy.deep");
  EXPECT_FALSE(find(results, "speculative.deep.exit2.T1").contains("exactness"));
  // The last layer predicts the model's own outputs, and no other model's.
  const auto& alpha = results.at("tasks").at(0).at("drafters").at("deep/exit4").at("alpha_forced");
  EXPECT_DOUBLE_EQ(alpha.at("temperature_0"), 1);
}

TEST_F(InsideSuite, MatchRatesOfAnotherVocabularyOrOfLayersWithoutExitsAreRefusedInTheirPlace) {
  write_model(root_ / "wide", 3, 5, 48);
  write_exits(root_ / "exits", root_ / "target", 2);
  options_.drafter.push_back({.name = "wide", .model = root_ / "wide"});
  options_.match_rates.resize(2);
  options_.match_rates[0].name = "a";
  options_.match_rates[0].model = "wide";
  options_.match_rates[1].name = "b";
  options_.match_rates[1].exits = root_ / "exits";
  options_.match_rates[1].layers = {1};
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, testing::AllOf(HasSubstr("match_rates[0]"), HasSubstr("vocabularies of different sizes"),
                                    HasSubstr("match_rates[1], exits"), HasSubstr("no exit at any")));
}

TEST_F(InsideSuite, AnExitAtTheLastLayerPredictsAsTheModelDoes) {
  options_.drafter.push_back({.name = "exit3", .exit = 3});
  SettingGrid& run = add_run("speculative", "exit3");
  run.lists[&DecodeOptions::temperature] = {0};
  run.lists[&DecodeOptions::window] = {3};
  const auto results = run_suite();
  EXPECT_DOUBLE_EQ(find(results, "speculative.exit3.T0.G3").at("acceptance").at("acceptance_rate"), 1);
  const auto& drafter = results.at("tasks").at(0).at("drafters").at("exit3");
  EXPECT_GT(drafter.at("cost_ratio"), 0);
  EXPECT_DOUBLE_EQ(drafter.at("alpha_forced").at("temperature_0"), 1);
  EXPECT_NEAR(drafter.at("alpha_forced").at("temperature_1"), 1, 1e-9);
  expect_predicts_as_the_target(results, "exit3");
}

TEST_F(InsideSuite, ExitsMayLieInADirectoryOfTheirOwn) {
  write_exits(root_ / "exits", root_ / "target", 2);
  SettingGrid& own = add_inside("ppd");
  own.lists[&DecodeOptions::early_layer] = {2};
  SettingGrid& given = add_inside("ppd");
  given.name = "given";
  given.decode.exits = root_ / "exits";
  given.lists[&DecodeOptions::early_layer] = {2};
  const auto results = run_suite();
  EXPECT_EQ(find(results, "given").at("inside").at("match_rate"),
            find(results, "ppd.d2.k3").at("inside").at("match_rate"));
}

TEST_F(InsideSuite, ExitsOfAnotherModelAndLayersOutsideItAreNamedBeforeAnyWork) {
  write_exits(root_ / "exits", root_ / "deep", 2);
  add_inside("ppd").decode.exits = root_ / "exits";
  SettingGrid& outside = add_inside("early-exit");
  outside.lists[&DecodeOptions::exit_layer] = {7};
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, HasSubstr("run ppd.k3"));
  EXPECT_THAT(error, HasSubstr("exit layer 7"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(InsideSuite, MatchRatesAreWrittenAsTableAndHeatMap) {
  MatchRateTable rates;
  rates.layers = {1, 2};
  rates.candidates = {1, 3};
  rates.decoding = {"greedy"};
  rates.prompts = 4;
  options_.match_rates = {rates};
  const auto results = run_suite();
  const auto& entry = results.at("match_rates").at(0);
  EXPECT_EQ(entry.at("task"), "ids");
  EXPECT_EQ(entry.at("prompts"), 4);
  EXPECT_FALSE(entry.at("cells").empty());
  EXPECT_THAT(read_file(root_ / "out/match_rates.csv"), HasSubstr("greedy,1,1,own"));
  EXPECT_THAT(read_file(root_ / "out/report.html"), HasSubstr("match rates of early predictions"));
}

}  // namespace
}  // namespace draftsmith::evaluate
