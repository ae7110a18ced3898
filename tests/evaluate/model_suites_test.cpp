// Suites on real model directories: each kind of drafter, models in blocks, operations and bytes, engagement curves.
#include <gmock/gmock.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/ngrams/ngram_table.h"
#include "evaluate/evaluation.h"
#include "model/cpu/instructions.h"
#include "model/files/checkpoint.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"
#include "model/models/deep_tandem.h"
#include "model/models/feature_drafter.h"
#include "model/models/language_models.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

TEST_F(ModelSuite, ExactMethodsGiveTheGreedyIdsAndTheirCountsAddUp) {
  add_run("assisted", "small");
  add_run("speculative", "small").lists[&DecodeOptions::temperature] = {0};
  add_run("sample", "");
  const auto results = run_suite();
  for (const char* name : {"assisted.small", "speculative.small.T0"}) {
    SCOPED_TRACE(name);
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("lossless"), true);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0);
    EXPECT_EQ(read_file(root_ / "out" / run.at("hypotheses").get<std::string>()),
              read_file(root_ / "out/hyp/ids.greedy.txt"));
  }
  const auto& greedy = results.at("tasks").at(0).at("baseline");
  EXPECT_DOUBLE_EQ(greedy.at("acceptance").at("tokens_per_target_run"), 1);
  EXPECT_GT(greedy.at("speed").at("seconds").at("encode"), 0);
  EXPECT_EQ(results.at("environment").at("instructions"), model::to_string(model::cpu_instructions()));
  const auto& drafter = results.at("tasks").at(0).at("drafters").at("small");
  EXPECT_GT(drafter.at("cost_ratio"), 0);
  EXPECT_GE(drafter.at("alpha_forced").at("temperature_1"), 0);
  EXPECT_LE(drafter.at("alpha_forced").at("temperature_1"), 1);
  EXPECT_EQ(drafter.at("alpha_forced").at("positions"), greedy.at("acceptance").at("tokens"));
}

TEST_F(ModelSuite, TablesAndLookupAreDraftersToo) {
  data::CorpusWriter corpus(root_ / "c.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
  for (int32_t i = 0; i < 30; ++i) corpus.add({}, std::vector<int32_t>{i, i + 1, i + 2, 1});
  corpus.finish();
  data::build_ngram_table(root_ / "c.h5", {}, root_ / "n.h5");
  options_.drafter = {{.name = "table", .ngram = root_ / "n.h5"}, {.name = "copy", .lookup = true, .longest = 3}};
  add_run("assisted", "table");
  add_run("assisted", "copy");
  for (const char* name : {"table", "copy"}) add_run("speculative", name).lists[&DecodeOptions::window] = {3};
  SettingGrid& behind_lookup = add_run("speculative", "table");
  behind_lookup.lists[&DecodeOptions::window] = {3};
  behind_lookup.lists[&DecodeOptions::lookup] = {1};
  const auto results = run_suite();
  for (const char* name : {"assisted.table", "assisted.copy"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_TRUE(run.contains("accounted")) << name;
    EXPECT_FALSE(run.contains("predicted")) << name;
  }
  EXPECT_GT(find(results, "speculative.table.T1.G3").at("acceptance").at("alpha").get<double>(), 0);
  EXPECT_TRUE(find(results, "speculative.table.T1.G3").contains("predicted"));
  const auto copy = find(results, "speculative.copy.T1.G3");  // drafts where it finds something: not at every step
  EXPECT_FALSE(copy.contains("predicted") || copy.at("work").contains("theory_operations_ratio")) << copy;
  EXPECT_TRUE(copy.at("acceptance").at("alpha_conditional").get<bool>());
  const auto behind = find(results, "speculative.table.T1.G3.L1");  // drafts at every step, here and there by copying
  EXPECT_FALSE(behind.contains("predicted") || behind.at("work").contains("theory_operations_ratio")) << behind;
  EXPECT_FALSE(behind.at("acceptance").at("alpha_conditional").get<bool>());
  for (const char* name : {"table", "copy"}) {
    const auto& drafter = results.at("tasks").at(0).at("drafters").at(name);
    EXPECT_GT(drafter.at("cost_ratio"), 0) << name;
    EXPECT_GE(drafter.at("alpha_forced").at("temperature_1"), 0) << name;
  }
  EXPECT_EQ(results.at("environment").at("drafters").at("copy"), "lookup:3");
}

// The target itself, read through unit projections.
TEST_F(ModelSuite, TandemSecondariesAreCalibratedMeasuredAndDraft) {
  const auto model = model::load_model(root_ / "target", {.pack = false});
  const auto secondary = model::make_tandem_secondary(
      *model, *model, {.layer_map = {0, 1, 2}, .block = 3, .projections = model::ProjectionStart::kIdentity});
  model::save_tandem(root_ / "tandem", *secondary, {.primary_directory = root_ / "target"});
  options_.drafter = {{.name = "same", .tandem = root_ / "tandem"}};
  SettingGrid& verified = add_run("tandem-speed", "same");
  verified.lists[&DecodeOptions::window] = {2, 4};
  verified.lists[&DecodeOptions::num_samples] = {1, 3};
  add_run("tandem", "same").lists[&DecodeOptions::window] = {3};
  SettingGrid& blind = add_run("tandem", "same");
  blind.lists[&DecodeOptions::window] = {3};
  blind.decode.free_token = false;
  const auto results = run_suite();
  const auto fast = find(results, "tandem-speed.same.G4");
  EXPECT_EQ(fast.at("exactness").at("lossless"), true);
  EXPECT_EQ(fast.at("exactness").at("differing_lines"), 0);
  EXPECT_DOUBLE_EQ(fast.at("acceptance").at("acceptance_rate"), 1);
  EXPECT_TRUE(fast.at("predicted").contains("long_run_ms"));
  const auto samples = find(results, "tandem-speed.same.G4.samples3");
  EXPECT_EQ(samples.at("baseline"), "greedy.samples3");
  EXPECT_EQ(samples.at("acceptance").at("tokens"), 3 * fast.at("acceptance").at("tokens").get<int64_t>());
  EXPECT_EQ(samples.at("acceptance").at("target_runs_per_output"), fast.at("acceptance").at("target_runs_per_output"));
  for (const char* name : {"tandem.same.G3", "tandem.same.G3.no_free_token"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("lossless"), false);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_TRUE(run.at("acceptance").at("alpha").is_null());
    EXPECT_TRUE(run.contains("accounted")) << name;
    EXPECT_FALSE(run.contains("predicted")) << name;
  }
  const auto& drafter = results.at("tasks").at(0).at("drafters").at("same");
  EXPECT_GT(drafter.at("cost_ratio"), 0);
  EXPECT_DOUBLE_EQ(drafter.at("alpha_forced").at("temperature_0"), 1);
  expect_predicts_as_the_target(results, "same");
}

TEST_F(ModelSuite, FeaturesDraftersAreCalibratedMeasuredAndDraft) {
  const auto model = model::load_model(root_ / "target", {.pack = false});
  model::save_with_companion(root_ / "features", *model::make_feature_drafter(*model), root_ / "target");
  options_.drafter = {{.name = "read", .features = root_ / "features"}};
  add_run("assisted", "read");
  const auto results = run_suite();
  EXPECT_EQ(find(results, "assisted.read").at("exactness").at("differing_lines"), 0);
  EXPECT_TRUE(find(results, "assisted.read").contains("accounted"));
  const auto& measured = results.at("tasks").at(0).at("drafters").at("read");
  EXPECT_GT(measured.at("cost_ratio"), 0);
  EXPECT_GE(measured.at("alpha_forced").at("temperature_0"), 0);
}

// The target itself, without its encoder.
TEST_F(ModelSuite, DraftersThatShareTheTargetsEncoderAreCalibratedMeasuredAndDraft) {
  const auto model = model::load_model(root_ / "target", {.pack = false});
  const auto drafter = model::make_shared_encoder_drafter(*model, *model, {model::ProjectionStart::kIdentity});
  model::save_with_companion(root_ / "shared", *drafter, root_ / "target");
  options_.drafter = {{.name = "same", .model = root_ / "shared"}};
  add_run("assisted", "same");
  const auto results = run_suite();
  const auto run = find(results, "assisted.same");
  EXPECT_DOUBLE_EQ(run.at("acceptance").at("acceptance_rate"), 1);
  EXPECT_TRUE(run.contains("accounted"));
  EXPECT_EQ(run.at("exactness").at("differing_lines"), 0);
  const auto& measured = results.at("tasks").at(0).at("drafters").at("same");
  EXPECT_GT(measured.at("cost_ratio"), 0);
  EXPECT_DOUBLE_EQ(measured.at("alpha_forced").at("temperature_0"), 1);
  expect_predicts_as_the_target(results, "same");
}

TEST_F(ModelSuite, WhatDoesNotFitIsNamedBeforeAnythingIsWritten) {
  add_run("greedy", "").model = "small";
  SuiteOptions sound = options_;
  write_model(root_ / "other", 1, 2, 48);
  options_.drafter[0].model = root_ / "other";
  EXPECT_THAT(error_of([&] { run_suite(); }), HasSubstr("vocabularies of different sizes"));
  options_ = sound;
  write_file_atomic(root_ / "source", "5 1\n6 1\n7 40 1\n");
  write_file_atomic(root_ / "reference", "5\n6\n7\n");
  EXPECT_THAT(error_of([&] { run_suite(); }), AllOf(HasSubstr("source:3"), HasSubstr("ids in 0..39")));
  options_.task[0].ids = false;
  EXPECT_NE(error_of([&] { run_suite(); }), "no error") << "text needs a tokenizer";
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

// The models "deep" and "blocks" beside an ordinary target, all decoder-only.
class BlockSuite : public ModelSuite {
 protected:
  BlockSuite() {
    const model::TransformerConfig config = model::llama_config({.decoder_layers = 2});
    model::save_model(root_ / "plain", model::TransformerModel(config, 1));
    model::save_model(root_ / "blocks", model::TransformerModel(model::block_prediction_config(config, 4), 2));
    model::save_deep_tandem(root_ / "deep", model::DeepTandemModel({.large = config, .small = config, .block = 2}, 3));
    options_.model = root_ / "plain";
    options_.drafter = {{"deep", root_ / "deep"}, {"blocks", root_ / "blocks"}};
  }
};

TEST_F(BlockSuite, RowsOfModelsInBlocksHaveSpeedAndQuality) {
  add_run("greedy", "").model = "deep";
  add_run("greedy", "").model = "blocks";
  SettingGrid& drafts = add_run("assisted", "");
  drafts.drafter = {"deep", "blocks"};
  const auto results = run_suite();
  for (const char* name : {"greedy.deep", "greedy.blocks", "assisted.deep", "assisted.blocks"}) {
    const auto run = find(results, name);
    EXPECT_GT(run.at("speed").at("speedup"), 0) << name;
    EXPECT_TRUE(run.at("quality").contains("bleu")) << name;
    EXPECT_GT(run.at("acceptance").at("tokens"), 0) << name;
  }
  EXPECT_EQ(find(results, "greedy.deep").at("acceptance").at("tokens_per_target_run"), 1);
  EXPECT_GT(find(results, "greedy.blocks").at("acceptance").at("tokens_per_target_run"), 1);
  EXPECT_EQ(find(results, "assisted.deep").at("exactness").at("differing_lines"), 0);
  EXPECT_EQ(find(results, "assisted.blocks").at("exactness").at("differing_lines"), 0);
  const auto& numbers = results.at("environment").at("parameters");
  EXPECT_EQ(numbers.at("deep"), model::count_numbers(*model::load_language_model(root_ / "deep").model));
  EXPECT_TRUE(results.at("tasks").at(0).at("prediction").at("models").contains("deep"));
}

class WorkSuite : public ModelSuite {
 protected:
  WorkSuite() {
    measure_little();
    options_.drafter.push_back({.name = "copy", .lookup = true});
  }

  static double work_of(const ordered_json& run, const char* key) { return run.at("work").at(key).get<double>(); }
};

TEST_F(WorkSuite, SetsEachMethodBesideGreedyDecoding) {
  add_run("assisted", "self").lists[&DecodeOptions::window] = {3};
  options_.run.back().decode.window_rule = "fixed";
  add_run("assisted", "copy");
  add_run("greedy", "").model = "small";
  const ordered_json results = run_suite();
  const ordered_json& greedy = results.at("tasks").at(0).at("baseline");
  EXPECT_EQ(work_of(greedy, "operations_ratio"), 1);
  EXPECT_EQ(work_of(greedy, "bytes_ratio"), 1);
  // Its own drafter is never wrong: four tokens a round of three draft steps and one of four tokens, so seven tokens
  // go through the model for four, and the weights are read four times.
  const ordered_json self = find(results, "assisted.self.G3.fixed");
  EXPECT_GT(work_of(self, "decode_operations_ratio"), 1.6);
  EXPECT_LT(work_of(self, "decode_operations_ratio"), 2.5);  // with the tokens that a whole draft leaves behind
  EXPECT_NEAR(work_of(self, "theory_operations_ratio"), 7.0 / 4, 0.1);
  EXPECT_GT(work_of(self, "intensity_ratio"), 1);
  // Look-up has no operations of its own; those of rejected tokens come on top.
  const ordered_json copy = find(results, "assisted.copy");
  EXPECT_GE(work_of(copy, "operations_ratio"), 1);
  EXPECT_LT(work_of(find(results, "greedy.small"), "operations_ratio"), 1);
  options_.run.clear();
  options_.batch_size = 5;  // lines read the weights together
  std::filesystem::remove_all(root_ / "out");
  const ordered_json together = run_suite().at("tasks").at(0).at("baseline");
  EXPECT_LT(work_of(together, "bytes_per_token"), work_of(greedy, "bytes_per_token") / 2);
}

class EngagementSuite : public ModelSuite {
 protected:
  EngagementSuite() { measure_little(); }

  EngagementTable& add_curve(const std::string& drafter) {
    EngagementTable& curve = options_.engagement.emplace_back();
    curve.drafter = drafter;
    return curve;
  }
};

TEST_F(EngagementSuite, RunsFromTheSmallModelToTheLargeOne) {
  add_run("greedy", "").model = "small";
  EngagementTable& curve = add_curve("small");
  curve.oracle = {0, 0.02, 1};
  curve.fallback = {0, 1};
  const ordered_json results = run_suite();
  const auto& measured = results.at("engagement").at(0);
  const auto& baseline = results.at("tasks").at(0).at("baseline").at("quality");
  EXPECT_EQ(measured.at("task"), "ids");
  EXPECT_EQ(measured.at("lines"), 10);
  EXPECT_EQ(measured.at("large").at("bleu"), baseline.at("bleu"));
  const auto& points = measured.at("points");
  ASSERT_EQ(points.size(), 5U);
  const auto small = find(results, "greedy.small").at("quality");
  for (const size_t none : {0U, 3U}) {
    EXPECT_EQ(points[none].at("engaged"), 0);
    EXPECT_EQ(points[none].at("quality"), small);
  }
  for (const size_t all : {2U, 4U}) {
    EXPECT_EQ(points[all].at("engaged"), points[all].at("tokens"));
    EXPECT_EQ(points[all].at("quality").at("bleu"), baseline.at("bleu"));
    EXPECT_EQ(points[all].at("quality").at("difference"), 0);
  }
  EXPECT_GT(points[1].at("engaged"), 0);
  EXPECT_LT(points[1].at("engaged"), points[1].at("tokens"));
  EXPECT_LE(points[1].at("changed"), points[1].at("engaged"));
  EXPECT_FALSE(points[3].contains("changed"));
}

TEST_F(EngagementSuite, IsShownAsTableAndPlot) {
  EngagementTable& curve = add_curve("self");
  curve.name = "own";
  curve.oracle = {0.5};
  curve.fallback = {};
  curve.lines = 4;
  const SuiteResult result = run_evaluation(options_, root_ / "out");
  EXPECT_THAT(result.table, AllOf(HasSubstr("engagement of the large model, own: small model self, 4 lines of ids"),
                                  HasSubstr("the large model alone: BLEU")));
  EXPECT_THAT(read_file(root_ / "out/report.html"),
              AllOf(HasSubstr("How often the large model must decide"), HasSubstr("oracle at 0.5")));
  // The same model on both sides: whoever decides, the tokens are the same.
  const EngagementPoint& point = result.results.engagement.at(0).points.at(0);
  EXPECT_EQ(point.changed, 0);
  EXPECT_DOUBLE_EQ(point.quality.difference->value, 0);
  const Results back = load_results(root_ / "out/results.json");
  EXPECT_EQ(to_json(back), to_json(result.results));
}

TEST_F(EngagementSuite, RefusesDraftersWithoutProbabilitiesInTheirPlace) {
  options_.drafter.push_back({.name = "copy", .lookup = true});
  add_curve("copy");
  EXPECT_THAT(error_of([&] { run_suite(); }), AllOf(HasSubstr("engagement[0]"), HasSubstr("only proposes tokens")));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(EngagementSuite, NamesWhatIsWrongBeforeModelsAreLoaded) {
  add_curve("nobody").task = "nowhere";
  add_curve("small");
  options_.task[0].metric.name = "none";
  options_.task[0].references.clear();
  EXPECT_THAT(problems(), AllOf(HasSubstr("engagement.drafter"), HasSubstr("engagement.task"),
                                HasSubstr("a curve shows quality, which this task does not measure")));
}

}  // namespace
}  // namespace draftsmith::evaluate
