// Suites whose methods work inside the model, and suites with windows that adapt, on real model directories.
#include <functional>

#include <gmock/gmock.h>

#include "base/files.h"
#include "evaluate/evaluation.h"
#include "evaluate/suite/setting_grid.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/models/router.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// One more drafter: "exit2", the first two of the target's three layers, which are four in the model "deep".
class InsideSuite : public ModelSuite {
 protected:
  InsideSuite() {
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
  EXPECT_GE(inside.at("match_rate"), 0);
  EXPECT_GT(inside.at("units_in_use"), 1);
  EXPECT_GE(inside.at("theorem_speedup"), 1);
  EXPECT_NEAR(inside.at("path_per_token").get<double>(), 3 / inside.at("theorem_speedup").get<double>(), 1e-9);
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
  int64_t tokens = 0;
  for (const auto& count : all.at("inside").at("exit_histogram")) tokens += count.get<int64_t>();
  EXPECT_EQ(tokens, all.at("acceptance").at("tokens"));
  const auto early = find(results, "calm.margin.lambda0.temp0");
  EXPECT_LT(early.at("inside").at("average_exit_layer"), 3);
}

TEST_F(InsideSuite, MatchRatesOfAnotherVocabularyAreRefusedInTheirPlace) {
  write_model(root_ / "wide", 3, 5, 48);
  options_.drafter.push_back({.name = "wide", .model = root_ / "wide"});
  options_.match_rates.resize(1);
  options_.match_rates[0].model = "wide";
  EXPECT_THAT(error_of([&] { run_suite(); }),
              AllOf(HasSubstr("match_rates[0]"), HasSubstr("vocabularies of different sizes")));
}

TEST_F(InsideSuite, ExitsOfAnotherModelAndLayersOutsideItAreNamedBeforeAnyWork) {
  const auto deep = model::load_model(root_ / "deep", {.pack = false});
  model::Exits exits({.exits = {{.layer = 2, .head = model::ExitHead::kFull}}}, *deep, 1);
  exits.bind((root_ / "deep").string(), model::model_hash(root_ / "deep"));
  model::save_exits(root_ / "exits", exits);
  add_inside("ppd").decode.exits = root_ / "exits";
  SettingGrid& outside = add_inside("early-exit");
  outside.lists[&DecodeOptions::exit_layer] = {7};
  EXPECT_THAT(error_of([&] { run_suite(); }), AllOf(HasSubstr("run ppd.k3"), HasSubstr("exit layer 7")));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(InsideSuite, MatchRatesAreCountedAndShown) {
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
  EXPECT_THAT(read_file(root_ / "out/report.html"), HasSubstr("match rates of early predictions"));
}

// The drafter "small" is the target with its embeddings disturbed, and has a router.
class RouterSuite : public ModelSuite {
 protected:
  RouterSuite() {
    const model::TransformerModel target(model::t5_config({.decoder_layers = 3}), 1);
    for (const auto& [name, value] : target.parameters()) {
      if (name.starts_with("embedding")) value.add_(at::sin(at::arange(value.numel(), at::kFloat)).view_as(value), 0.5);
    }
    model::save_model(root_ / "near", target);
    write_model(root_ / "other", 1, 3);
    model::RouterConfig config{.hidden = 8, .width = 16, .vocabulary = 40, .drafter = "small"};
    config.drafter_hash = model::model_hash(root_ / "near");
    model::save_router(root_ / "router", model::Router(config, 2));
    options_.drafter = {{"small", root_ / "near"}, {"other", root_ / "other"}};
    options_.drafter.push_back({.name = "copy", .lookup = true});
    options_.max_new_tokens = 16;
    measure_little();
  }

  SettingGrid& add_rule(const std::string& window_rule, const std::string& drafter = "small") {
    SettingGrid& run = add_run("assisted", drafter);
    run.name = window_rule;
    run.decode.window_rule = window_rule;
    run.lists[&DecodeOptions::max_draft] = {6};
    if (window_rule == "router") run.decode.router = root_ / "router";
    return run;
  }
};

TEST_F(RouterSuite, OracleDraftsNothingInVainAndNobodyChangesTheOutput) {
  SettingGrid& fixed = add_rule("fixed");
  fixed.lists[&DecodeOptions::max_draft] = {};
  fixed.lists[&DecodeOptions::window] = {6};
  add_rule("entropy").lists[&DecodeOptions::max_entropy] = {1.0};
  add_rule("router").lists[&DecodeOptions::threshold] = {0.5};
  add_rule("oracle");
  options_.batch_size = 2;
  const auto results = run_suite();
  for (const char* name : {"fixed", "entropy", "router", "oracle"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_GE(run.at("acceptance").at("target_runs").get<int64_t>(),
              find(results, "oracle").at("acceptance").at("target_runs").get<int64_t>());
  }
  const auto oracle = find(results, "oracle").at("acceptance");
  EXPECT_EQ(oracle.at("acceptance_rate"), 1);
  EXPECT_EQ(oracle.at("target_runs"), find(results, "fixed").at("acceptance").at("target_runs"));
  EXPECT_LT(oracle.at("draft_runs").get<int64_t>(),
            find(results, "fixed").at("acceptance").at("draft_runs").get<int64_t>());
  EXPECT_EQ(find(results, "router").at("params").at("threshold"), 0.5);
}

TEST_F(RouterSuite, RoutersAndOraclesThatMakeNoSenseAreRefusedBeforeAnythingIsRun) {
  const auto refused = [&](const std::string& rule, const std::string& drafter,
                           const std::function<void(SettingGrid&)>& change) {
    options_.run.clear();
    change(add_rule(rule, drafter));
    return error_of([&] { run_suite(); });
  };
  EXPECT_THAT(refused("router", "small", [](auto& run) { run.decode.router = ""; }), HasSubstr("none was given"));
  EXPECT_THAT(refused("router", "small", [&](auto& run) { run.decode.router = root_ / "nowhere"; }),
              HasSubstr("not a router directory"));
  EXPECT_THAT(refused("router", "other", [](auto&) {}),
              AllOf(HasSubstr("another drafter"), HasSubstr("other"), HasSubstr("small")));
  EXPECT_THAT(refused("router", "copy", [](auto&) {}), HasSubstr("a drafter that is a model of its own"));
  EXPECT_THAT(refused("fixed", "small", [&](auto& run) { run.decode.router = root_ / "router"; }),
              HasSubstr("this run does not read the option"));
  EXPECT_THAT(refused("oracle", "small", [](auto& run) { run.decode.method = "speculative"; }),
              HasSubstr("temperature 0"));
  EXPECT_THAT(refused("oracle", "small", [](auto& run) { run.decode.acceptance = "accept_all"; }),
              HasSubstr("this acceptance lets them"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

// So that results say what was run, and drafts are as long as they are calibrated for.
TEST_F(RouterSuite, RunsWithoutListsRecordTheRoutersOwnDefaults) {
  add_rule("router").lists[&DecodeOptions::max_draft] = {};
  const auto results = run_suite();
  const auto params = find(results, "router").at("params");
  EXPECT_EQ(params.at("threshold"), 0.8);
  EXPECT_EQ(params.at("max_draft"), 16);
  options_.run[0].name = "";
  const SuiteOptions resolved = with_router_defaults(options_);
  EXPECT_EQ(expand_grid(resolved.run[0]).front().label, "assisted.small.max_draft16.tau0.8.router");
  EXPECT_EQ(expand_grid(resolved.run[0]).front().decode.longest_draft(), 16);
  options_.run[0].lists[&DecodeOptions::threshold] = {0.5};
  EXPECT_EQ(with_router_defaults(options_).run[0].lists[&DecodeOptions::threshold], std::vector{0.5});
}

}  // namespace
}  // namespace draftsmith::evaluate
