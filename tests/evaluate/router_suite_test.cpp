// Suites with windows that adapt: router, entropy and oracle beside the others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "evaluate/evaluation.h"
#include "evaluate/suite/setting_grid.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/router.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

// A target, a drafter that is the target with its embeddings disturbed, a router of that drafter, and a task of ids.
class RouterSuite : public testing::Test {
 protected:
  void SetUp() override {
    const model::TransformerModel target(model::t5_config(), 1);
    model::save_model(root_ / "target", target);
    for (const auto& [name, value] : target.parameters()) {
      if (name.starts_with("embedding")) value.add_(at::sin(at::arange(value.numel(), at::kFloat)).view_as(value), 0.5);
    }
    model::save_model(root_ / "small", target);
    model::save_model(root_ / "other", model::TransformerModel(model::t5_config({.decoder_layers = 1}), 3));
    model::RouterConfig config;
    config.width = 16;
    config.vocabulary = 40;
    config.hidden = 8;
    config.drafter = "small";
    config.drafter_hash = model::model_hash(root_ / "small");
    model::save_router(root_ / "router", model::Router(config, 2));
    options_ = suite_of_ids(root_.path(), 6);
    options_.drafter = {{"small", root_ / "small"}, {"other", root_ / "other"}};
    options_.max_new_tokens = 16;
    options_.repetitions = 1;
    options_.resamples = 10;
    options_.forced_lines = 0;
  }

  SettingGrid& add_run(const std::string& window_rule, const std::string& drafter = "small") {
    SettingGrid& run = options_.run.emplace_back();
    run.name = window_rule;
    run.decode.method = "assisted";
    run.drafter = {drafter};
    run.decode.window_rule = window_rule;
    run.lists[&DecodeOptions::max_draft] = {6};
    if (window_rule == "router") run.decode.router = root_ / "router";
    return run;
  }

  std::string suite_error() const {
    return error_of([&] { run_evaluation(options_, root_ / "out", {.quiet = true}); });
  }

  static ordered_json find(const ordered_json& results, const std::string& name, size_t task = 0) {
    for (const auto& run : results.at("tasks").at(task).at("runs")) {
      if (run.at("name") == name) return run;
    }
    ADD_FAILURE() << "no run " << name;
    return {};
  }

  const TemporaryDirectory root_;
  SuiteOptions options_;
};

TEST_F(RouterSuite, OracleDraftsNothingInVainAndNobodyChangesTheOutput) {
  SettingGrid& fixed = add_run("fixed");
  fixed.lists[&DecodeOptions::max_draft] = {};
  fixed.lists[&DecodeOptions::window] = {6};
  add_run("entropy").lists[&DecodeOptions::max_entropy] = {1.0};
  add_run("router").lists[&DecodeOptions::threshold] = {0.5};
  add_run("oracle");
  options_.batch_size = 2;
  const auto results = to_json(run_evaluation(options_, root_ / "out", {.quiet = true}).results);
  for (const char* name : {"fixed", "entropy", "router", "oracle"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_GE(run.at("acceptance").at("target_runs").get<int64_t>(),
              find(results, "oracle").at("acceptance").at("target_runs").get<int64_t>());
  }
  const auto oracle = find(results, "oracle").at("acceptance");
  EXPECT_EQ(oracle.at("accepted"), oracle.at("drafted"));
  EXPECT_EQ(oracle.at("draft_runs"), oracle.at("drafted"));
  EXPECT_EQ(oracle.at("target_runs"), find(results, "fixed").at("acceptance").at("target_runs"));
  EXPECT_LT(oracle.at("drafted").get<int64_t>(), find(results, "fixed").at("acceptance").at("drafted").get<int64_t>());
  EXPECT_EQ(find(results, "router").at("params").at("threshold"), 0.5);
}

TEST_F(RouterSuite, RoutersAndOraclesThatMakeNoSenseAreRefusedBeforeAnythingIsRun) {
  add_run("router").decode.router = "";
  EXPECT_THAT(suite_error(), HasSubstr("none was given"));
  options_.run.clear();
  add_run("router").decode.router = root_ / "nowhere";
  EXPECT_THAT(suite_error(), HasSubstr("not a router directory"));
  options_.run.clear();
  add_run("router", "other");
  EXPECT_THAT(suite_error(), AllOf(HasSubstr("another drafter"), HasSubstr("other"), HasSubstr("small")));
  options_.run.clear();
  add_run("fixed").decode.router = root_ / "router";
  EXPECT_THAT(suite_error(), HasSubstr("this run does not read the option"));
  options_.run.clear();
  SettingGrid& sampled = add_run("oracle");
  sampled.decode.method = "speculative";
  EXPECT_THAT(suite_error(), HasSubstr("temperature 0"));
  options_.run.clear();
  add_run("oracle").decode.acceptance = "accept_all";
  EXPECT_THAT(suite_error(), HasSubstr("without verification none is"));
  options_.run.clear();
  SettingGrid& released = add_run("oracle");
  released.decode.method = "bild";
  released.lists[&DecodeOptions::rollback_rule] = {"released_code"};
  EXPECT_THAT(suite_error(), HasSubstr("rollback_rule effective or literal"));
  options_.run.clear();
  options_.drafter.push_back({.name = "copy", .lookup = true});
  add_run("router", "copy");
  EXPECT_THAT(suite_error(), HasSubstr("a drafter that is a model of its own"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

// So that results say what was run, and drafts are as long as they are calibrated for.
TEST_F(RouterSuite, RunsWithoutListsRecordTheRoutersOwnDefaults) {
  add_run("router").lists[&DecodeOptions::max_draft] = {};
  const auto results = to_json(run_evaluation(options_, root_ / "out", {.quiet = true}).results);
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
