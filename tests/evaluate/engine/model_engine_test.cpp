// Suites on real model directories: small T5s with random weights, token ids as text.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/ngrams/ngram_table.h"
#include "evaluate/evaluation.h"
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
  add_run("bild", "small");
  add_run("sample", "");
  const auto results = run_suite();
  for (const char* name : {"assisted.small", "speculative.small.T0"}) {
    SCOPED_TRACE(name);
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("lossless"), true);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0);
    EXPECT_EQ(read_file(root_ / "out" / run.at("hypotheses").get<std::string>()),
              read_file(root_ / "out/hyp/ids.greedy.txt"));
    const auto& acceptance = run.at("acceptance");
    int64_t verifications = 0;
    for (const auto& count : acceptance.at("accepted_histogram")) verifications += count.get<int64_t>();
    EXPECT_EQ(acceptance.at("verifications"), verifications);
  }
  const auto& greedy = results.at("tasks").at(0).at("baseline");
  EXPECT_DOUBLE_EQ(greedy.at("acceptance").at("tokens_per_target_run"), 1);
  EXPECT_GT(greedy.at("speed").at("seconds").at("encode"), 0);
  const auto& drafter = results.at("tasks").at(0).at("drafters").at("small");
  EXPECT_GT(drafter.at("cost_ratio"), 0);
  EXPECT_GE(drafter.at("alpha_forced").at("temperature_1"), 0);
  EXPECT_LE(drafter.at("alpha_forced").at("temperature_1"), 1);
  EXPECT_EQ(drafter.at("alpha_forced").at("positions"), greedy.at("acceptance").at("tokens"));
  EXPECT_EQ(drafter.at("alpha_forced").at("sampled_positions"),
            find(results, "sample.T1").at("acceptance").at("tokens"));
}

TEST_F(ModelSuite, TablesAndLookupAreDraftersToo) {
  data::CorpusWriter corpus(root_ / "c.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
  for (int32_t i = 0; i < 30; ++i) corpus.add({}, std::vector<int32_t>{i, i + 1, i + 2, 1});
  corpus.finish();
  data::build_ngram_table(root_ / "c.h5", {}, root_ / "n.h5");
  options_.drafter = {{.name = "table", .ngram = root_ / "n.h5"}, {.name = "copy", .lookup = true, .longest = 3}};
  add_run("assisted", "table");
  add_run("assisted", "copy");
  add_run("speculative", "table").lists[&DecodeOptions::window] = {3};
  add_run("speculative", "copy").lists[&DecodeOptions::window] = {3};
  const auto results = run_suite();
  for (const char* name : {"assisted.table", "assisted.copy"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_TRUE(run.contains("accounted")) << name;
    EXPECT_FALSE(run.contains("predicted")) << name;
  }
  EXPECT_GT(find(results, "speculative.table.T1.G3").at("acceptance").at("alpha").get<double>(), 0);
  for (const char* name : {"table", "copy"}) {
    const auto& drafter = results.at("tasks").at(0).at("drafters").at(name);
    EXPECT_GT(drafter.at("cost_ratio"), 0) << name;
    EXPECT_LT(drafter.at("cost_ratio"), 0.5) << name;
    EXPECT_GE(drafter.at("alpha_forced").at("temperature_1"), 0) << name;
  }
  EXPECT_EQ(results.at("environment").at("drafters").at("copy"), "lookup:3");
}

// A Tandem secondary that is the target itself, read through unit projections.
void write_identity_tandem(const std::filesystem::path& directory, const std::filesystem::path& target) {
  const auto model = model::load_model(target, {.pack = false});
  const auto secondary = model::make_tandem_secondary(
      *model, *model, {.layer_map = {0, 1, 2}, .block = 3, .projections = model::ProjectionStart::kIdentity});
  model::save_tandem(directory, *secondary, {.primary_directory = target});
}

TEST_F(ModelSuite, TandemSecondariesAreCalibratedMeasuredAndDraft) {
  write_identity_tandem(root_ / "tandem", root_ / "target");
  options_.drafter = {{.name = "same", .tandem = root_ / "tandem"}};
  SettingGrid& verified = add_run("tandem-speed", "same");
  verified.lists[&DecodeOptions::window] = {2, 4};
  verified.lists[&DecodeOptions::num_samples] = {1, 3};
  add_run("tandem-speed", "same").lists[&DecodeOptions::temperature] = {1};
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
  EXPECT_DOUBLE_EQ(find(results, "tandem-speed.same.T1").at("acceptance").at("acceptance_rate"), 1);
  const auto samples = find(results, "tandem-speed.same.G4.samples3");
  EXPECT_EQ(samples.at("baseline"), "greedy.samples3");
  EXPECT_EQ(samples.at("acceptance").at("tokens"), 3 * fast.at("acceptance").at("tokens").get<int64_t>());
  EXPECT_EQ(samples.at("speed").at("tokens"), samples.at("acceptance").at("tokens"));
  EXPECT_EQ(samples.at("acceptance").at("target_runs_per_output"), fast.at("acceptance").at("target_runs_per_output"));
  for (const char* name : {"tandem.same.G3", "tandem.same.G3.no_free_token"}) {
    const auto run = find(results, name);
    EXPECT_EQ(run.at("exactness").at("lossless"), false);
    EXPECT_EQ(run.at("exactness").at("differing_lines"), 0) << name;
    EXPECT_TRUE(run.at("acceptance").at("alpha").is_null());
    EXPECT_TRUE(run.contains("accounted")) << name;
    EXPECT_FALSE(run.contains("predicted")) << name;
  }
  // A target without its head may be faster than plain decoding.
  EXPECT_GT(find(results, "tandem.same.G3").at("speed").at("speedup_decode_bound"), 2);
  EXPECT_FALSE(find(results, "tandem.same.G3.no_free_token").at("speed").contains("speedup_decode_bound"));
  const auto& drafter = results.at("tasks").at(0).at("drafters").at("same");
  EXPECT_GT(drafter.at("cost_ratio"), 0);
  EXPECT_DOUBLE_EQ(drafter.at("alpha_forced").at("temperature_0"), 1);
  EXPECT_NEAR(drafter.at("alpha_forced").at("temperature_1"), 1, 1e-9);
  expect_predicts_as_the_target(results, "same");
}

// The target itself, without its encoder.
TEST_F(ModelSuite, DraftersThatShareTheTargetsEncoderAreCalibratedMeasuredAndDraft) {
  const auto model = model::load_model(root_ / "target", {.pack = false});
  const auto drafter = model::make_shared_encoder_drafter(*model, *model, {model::ProjectionStart::kIdentity});
  model::save_shared_encoder(root_ / "shared", *drafter, root_ / "target");
  options_.drafter = {{.name = "same", .model = root_ / "shared"}};
  add_run("assisted", "same");
  add_run("bild", "same");
  SettingGrid& sampled = add_run("speculative", "same");
  sampled.lists[&DecodeOptions::window] = {2, 4};
  sampled.lists[&DecodeOptions::temperature] = {0, 1};
  const auto results = run_suite();
  for (const char* name : {"assisted.same", "speculative.same.T0.G4", "speculative.same.T1.G4"}) {
    EXPECT_DOUBLE_EQ(find(results, name).at("acceptance").at("acceptance_rate"), 1) << name;
    EXPECT_TRUE(find(results, name).contains("accounted")) << name;
  }
  EXPECT_EQ(find(results, "assisted.same").at("exactness").at("differing_lines"), 0);
  const auto& measured = results.at("tasks").at(0).at("drafters").at("same");
  EXPECT_GT(measured.at("cost_ratio"), 0);
  EXPECT_DOUBLE_EQ(measured.at("alpha_forced").at("temperature_0"), 1);
  EXPECT_NEAR(measured.at("alpha_forced").at("temperature_1"), 1, 1e-9);
  expect_predicts_as_the_target(results, "same");
}

TEST_F(ModelSuite, ADrafterThatSharesAnEncoderDoesNotDecodeAlone) {
  const auto model = model::load_model(root_ / "target", {.pack = false});
  const auto drafter = model::make_shared_encoder_drafter(*model, *model);
  model::save_shared_encoder(root_ / "shared", *drafter, root_ / "target");
  options_.drafter = {{.name = "shared", .model = root_ / "shared"}};
  add_run("greedy", "").model = "shared";
  EXPECT_THAT(error_of([&] { run_suite(); }), testing::HasSubstr("does not decode alone"));
}

TEST_F(ModelSuite, ATandemSecondaryOfAnotherModelIsRefused) {
  write_model(root_ / "other", 3, 5);
  write_identity_tandem(root_ / "tandem", root_ / "other");
  options_.drafter = {{.name = "stranger", .tandem = root_ / "tandem"}};
  add_run("tandem-speed", "stranger");
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, testing::HasSubstr((root_ / "other").string()));
  EXPECT_THAT(error, testing::HasSubstr((root_ / "target").string()));
}

TEST_F(ModelSuite, TandemMethodsNeedATandemDrafterBeforeAnythingIsLoaded) {
  add_run("tandem", "small");
  Problems problems;
  validate_options(options_, "", problems);
  ASSERT_EQ(problems.list().size(), 1U);
  EXPECT_THAT(to_string(problems.list()[0]), testing::HasSubstr("tandem = its directory"));
}

TEST_F(ModelSuite, ADrafterThatIsTheTargetIsAlwaysAccepted) {
  add_run("speculative", "self").lists[&DecodeOptions::window] = {3};
  const auto results = run_suite();
  const auto run = find(results, "speculative.self.T1.G3");
  EXPECT_NEAR(run.at("acceptance").at("alpha").get<double>(), 1, 1e-12);
  EXPECT_DOUBLE_EQ(run.at("acceptance").at("acceptance_rate"), 1);
  EXPECT_EQ(run.at("baseline"), "sample.T1");
  EXPECT_NEAR(results.at("tasks").at(0).at("drafters").at("self").at("alpha_forced").at("temperature_1").get<double>(),
              1, 1e-12);
  expect_predicts_as_the_target(results, "self");
}

TEST_F(ModelSuite, BatchesGiveTheSameOutputsAsSingleLines) {
  add_run("assisted", "small");
  run_suite();
  const std::string single = read_file(root_ / "out/hyp/ids.assisted.small.txt");
  options_.batch_size = 4;
  run_suite();
  EXPECT_EQ(read_file(root_ / "out/hyp/ids.assisted.small.txt"), single);
}

TEST_F(ModelSuite, MethodsWithoutADrafterAndDraftersWithoutAMethodAreErrors) {
  add_run("assisted", "");
  add_run("sample", "small");
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, testing::HasSubstr("a drafter, for method assisted"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(ModelSuite, ADrafterThatDecodesAloneIsGivenNoOtherVocabularysIds) {
  write_model(root_ / "other", 1, 2, 48);
  options_.drafter[0].model = root_ / "other";
  add_run("greedy", "").model = "small";
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, testing::HasSubstr("vocabularies of different sizes"));
}

TEST_F(ModelSuite, IdsOutsideTheVocabularyAreNamedByFileAndLine) {
  write_file_atomic(root_ / "source", "5 1\n6 1\n7 40 1\n");
  write_file_atomic(root_ / "reference", "5\n6\n7\n");
  const std::string error = error_of([&] { run_suite(); });
  EXPECT_THAT(error, testing::HasSubstr("source:3"));
  EXPECT_THAT(error, testing::HasSubstr("ids in 0..39"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "out"));
}

TEST_F(ModelSuite, TextTasksNeedATokenizer) {
  options_.task[0].ids = false;
  EXPECT_THROW(run_suite(), UserError);
}

}  // namespace
}  // namespace draftsmith::evaluate
