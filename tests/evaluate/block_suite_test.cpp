// Suites with block prediction and deep Tandems: alone, as drafters, and as the target.
#include <gmock/gmock.h>

#include "base/files.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/language_models.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The models "deep" and "blocks" beside an ordinary target, all decoder-only.
class BlockSuite : public ModelSuite {
 protected:
  void SetUp() override {
    const model::TransformerConfig config = model::llama_config({.decoder_layers = 2});
    model::save_model(root_ / "target", model::TransformerModel(config, 1));
    model::save_model(root_ / "blocks", model::TransformerModel(model::block_prediction_config(config, 4), 2));
    model::save_deep_tandem(root_ / "deep", model::DeepTandemModel({.large = config, .small = config, .block = 2}, 3));
    options_ = suite_of_ids(root_.path(), 6);
    options_.drafter = {{"deep", root_ / "deep"}, {"blocks", root_ / "blocks"}};
    options_.max_new_tokens = 12;
    options_.repetitions = 2;
    options_.resamples = 100;
  }

  SettingGrid& add_alone(const std::string& model) {
    SettingGrid& run = add_run("greedy", "");
    run.model = model;
    return run;
  }
};

TEST_F(BlockSuite, RowsOfModelsInBlocksHaveSpeedAndQuality) {
  add_alone("deep");
  add_alone("blocks");
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
  EXPECT_EQ(numbers.at("deep"), model::count_numbers(*model::load_language_model(root_ / "deep")));
  EXPECT_TRUE(results.at("tasks").at(0).at("prediction").at("models").contains("deep"));
}

TEST_F(BlockSuite, PromptsShorterThanABlockAreRefusedInTheirPlace) {
  write_file_atomic(root_ / "source", "5 6 7 8\n5 6 7\n");
  write_file_atomic(root_ / "reference", "5\n6\n");
  add_alone("blocks");
  EXPECT_THAT(error_of([&] { run_suite(); }),
              AllOf(HasSubstr("source:2"), HasSubstr("at least 4 tokens"), HasSubstr("3 tokens")));
}

TEST_F(BlockSuite, ATargetOfBlocksIsDraftedFor) {
  options_.model = root_ / "deep";
  options_.drafter = {{"small", root_ / "target"}};
  add_run("assisted", "small");
  add_run("speculative", "small");
  const auto results = run_suite();
  EXPECT_EQ(find(results, "assisted.small").at("exactness").at("differing_lines"), 0);
  EXPECT_EQ(find(results, "speculative.small.T1").at("first_tokens").at("passed"), true);
}

}  // namespace
}  // namespace draftsmith::evaluate
