// Train stages of Tandems, deep Tandems and block prediction: what a recipe says becomes a directory that loads, and
// what does not fit is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/tandem.h"
#include "recipes/stages/trained_models.h"
#include "tests/recipes/stages/train_stage_fixtures.h"
#include "tests/support/tandem.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A tokenizer, corpora for both kinds of models, a primary of three decoder layers and a small model of one.
class TandemStages : public TrainStageTest {
 protected:
  void SetUp() override {
    TrainStageTest::SetUp();
    write_corpus("prompts.h5", {{"prompts", "true"}});
    save("primary", 3, 16);
    save("small", 1, 8);
  }

  // A train stage of two steps, with `more` of its table.
  toml::table stage(const std::string& more, const std::string& corpus = "corpus.h5") const {
    return toml::parse("corpus = \"" + path(corpus).string() + "\"\ntokenizer = \"" + path("spiece.model").string() +
                       "\"\nvalidation_corpus = \"" + path(corpus).string() + "\"\n" + more +
                       "\n[training]\nlength = \"2 steps\"\ntensorboard = false\n");
  }
  std::string tandem(const std::string& from, const std::string& primary, const std::string& more = "") const {
    return option("from", from) + "[tandem]\n" + option("primary", primary) + more;
  }
};

TEST(FrozenPrimary, IsBf16WhereTrainingIsAndTheDeviceIsFastAtIt) {
  EXPECT_EQ(frozen_type("bf16", at::kCUDA), at::kBFloat16);
  EXPECT_EQ(frozen_type("bf16", at::kCPU), at::kFloat);
  EXPECT_EQ(frozen_type("fp32", at::kCUDA), at::kFloat);
}

TEST_F(TandemStages, ASecondStageGoesOnFromATandemWithItsPrimary) {
  run(stage(tandem("small", "primary", "block = 3\nlayer_map = [2]\n")), "first");
  const auto first = model::load_tandem(path("first/model"));
  EXPECT_THAT(first.secondary->config().tandem.layer_map, ElementsAre(2));
  EXPECT_EQ(first.secondary->config().tandem.block, 3);
  EXPECT_TRUE(fs::exists(path("first/validation.json")));

  toml::table second = stage(option("from", "first/model") + "[tandem]\ncopy_primary = true\n");
  second["training"].as_table()->insert("objective", toml::table{{"name", "distill"}});
  second["training"].as_table()->insert("validation", toml::table{{"bleu_examples", 3}, {"measure", "overlap"}});
  run(second, "second");
  EXPECT_EQ(fs::canonical(model::tandem_primary(path("second/model"))), fs::canonical(path("second/model/primary")));
  const auto done = model::load_tandem(path("second/model"));
  EXPECT_EQ(done.secondary->config().tandem.block, 3);
  const auto summary = load_json(path("second/validation.json"));
  EXPECT_GT(summary["model"]["overlap"].get<double>(), 0) << "against the primary";
  EXPECT_TRUE(summary["model"].contains("bleu"));
}

TEST_F(TandemStages, ASecondaryMayStartFromRandomWeightsAndItsPrimaryBeTrained) {
  const std::string shape =
      "[architecture]\nwidth = 8\nheads = 1\nhead_width = 8\nff_width = 8\nencoder_layers = 1\ndecoder_layers = 2\n";
  run(stage(shape + "[tandem]\n" + option("primary", "primary") +
            "projections = \"identity\"\nconfiguration = \"both_both_losses\"\n"),
      "fresh");
  const auto made = model::load_tandem(path("fresh/model"), {.primary = {.pack = false}});
  EXPECT_THAT(made.secondary->config().tandem.layer_map, ElementsAre(1, 3));
  const auto before = model::load_model(path("primary"), {.pack = false});
  EXPECT_FALSE(made.primary->parameters()
                   .at("decoder.0.self_attention.query.weight")
                   .equal(before->parameters().at("decoder.0.self_attention.query.weight")));
}

// Models of one tokenizer, as Pythia's are.
TEST_F(TandemStages, AVocabularyOfAnotherPaddingIsTrained) {
  save("other", 1, 8, tokenizer_->vocabulary() + 8);
  run(stage(tandem("other", "primary")), "padded");
  const auto made = model::load_tandem(path("padded/model"), {.primary = {.pack = false}});
  EXPECT_EQ(made.secondary->config().vocabulary, tokenizer_->vocabulary() + 8);
  EXPECT_NE(made.primary->config().vocabulary, tokenizer_->vocabulary() + 8);
}

TEST_F(TandemStages, WhatDoesNotFitIsRefusedNamingBoth) {
  EXPECT_THAT(stage_error(stage(tandem("small", "primary", "layer_map = [4]\n"))),
              AllOf(HasSubstr(path("small")), HasSubstr("layer_map"), HasSubstr("to 3"), HasSubstr("4")));
  EXPECT_THAT(stage_error(stage(option("from", "small") + "[tandem]\n")), HasSubstr("needs a primary"));
  run(stage(tandem("small", "primary")), "first");
  EXPECT_THAT(stage_error(stage(tandem("first/model", "small"))), HasSubstr(path("small")));
  EXPECT_THAT(stage_error(stage(tandem("first/model", "primary", "layer_map = [1]\nprojections = \"random\"\n"))),
              AllOf(HasSubstr("layer_map"), HasSubstr("projections")));
  EXPECT_THAT(stage_error(stage(option("from", "first/model"))), HasSubstr("Tandem")) << "it is no ordinary model";
}

TEST_F(TandemStages, ValidateFindsWhatTheTableAloneShows) {
  EXPECT_THAT(problems_of(stage(tandem("small", "primary", "block = 0\nlayer_map = [-1]\nconfiguration = \"both\"\n"))),
              AllOf(HasSubstr("tandem.block"), HasSubstr("tandem.layer_map"), HasSubstr("tandem.configuration")));
  const std::string shape = "[architecture]\ndecoder_layers = 2\n";
  EXPECT_THAT(problems_of(stage(shape + "[tandem]\nlayer_map = [1, 2, 3]\n")),
              AllOf(HasSubstr("needs a primary"), HasSubstr("2 numbers")));
  EXPECT_THAT(problems_of(stage(option("from", "small") + "block_prediction = 4\n[tandem]\n")),
              AllOf(HasSubstr("of one kind"), HasSubstr("start from random weights")));
  EXPECT_THAT(problems_of(stage("[deep_tandem]\n" + shape)), HasSubstr("the shape of its large part"));
  EXPECT_THAT(problems_of(stage(option("teacher", "primary") + "block_prediction = 4\n" + shape)),
              HasSubstr("predicts other tokens than a teacher"));
  EXPECT_EQ(problems_of(stage(tandem("small", "primary", "block = 5\nlayer_map = [0]\n"))), "no error");
}

TEST_F(TandemStages, ModelsInBlocksAreTrainedFromTheirShapes) {
  const std::string shape =
      "family = \"llama\"\nwidth = 8\nheads = 2\nhead_width = 4\nff_width = 8\ndecoder_layers = 1\n";
  run(stage("block_prediction = 2\n[architecture]\n" + shape, "prompts.h5"), "blocks");
  EXPECT_EQ(model::load_block_prediction(path("blocks/model"))->config().block_attention, 2);
  run(stage("[architecture]\n" + shape + "[deep_tandem]\nblock = 3\n[deep_tandem.large]\n" + shape, "prompts.h5"),
      "deep");
  EXPECT_EQ(model::load_deep_tandem(path("deep/model"))->block(), 3);
  EXPECT_TRUE(fs::exists(path("deep/validation.json")));
  toml::table bleu = stage("block_prediction = 2\n[architecture]\n" + shape, "prompts.h5");
  bleu["training"].as_table()->insert("validation", toml::table{{"bleu_examples", 3}});
  EXPECT_THAT(stage_error(bleu), HasSubstr("cannot decode on their own"));
  EXPECT_THAT(stage_error(stage("block_prediction = 2\n[architecture]\ndecoder_layers = 1\n")),
              HasSubstr("decoder-only"));
}

}  // namespace
}  // namespace draftsmith::recipes
