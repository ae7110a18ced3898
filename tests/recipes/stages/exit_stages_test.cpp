// Train stages with exits, and stages of heads: what a recipe says becomes a model directory that loads with its exits,
// and what does not fit is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "tests/recipes/stages/train_stage_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A tokenizer, a corpus, and a target of three decoder layers.
class ExitStages : public TrainStageTest {
 protected:
  void SetUp() override {
    TrainStageTest::SetUp();
    save("target", 3, 16);
  }

  std::string common() const {
    return option("corpus", "corpus.h5") + option("tokenizer", "spiece.model") +
           option("validation_corpus", "corpus.h5");
  }
  // Stages of two steps, with `more` of their tables.
  toml::table exits(const std::string& more, const std::string& start, const std::string& training = "") const {
    return toml::parse(common() + start + "\n[exits]\n" + more + "\n[training]\nlength = \"2 steps\"\n" +
                       "tensorboard = false\n" + training);
  }
  toml::table exits(const std::string& more) const { return exits(more, option("from", "target")); }
  toml::table heads(const std::string& more, const std::string& training = "", const std::string& of = "target") const {
    return toml::parse(common() + option("model", of) + more + "\n[training]\nlength = \"2 steps\"\n" +
                       "tensorboard = false\noptimizer.lr = 1e-2\n" + training);
  }
  std::string heads_error(const std::string& more) const { return stage_error(heads(more), "heads"); }

  std::unique_ptr<model::Exits> exits_of(const fs::path& directory) const {
    const auto model = model::load_model(directory, {.pack = false});
    return model::load_exits(model::exits_directory(directory), directory, *model);
  }
  static std::vector<int64_t> layers_of(const model::Exits& exits) {
    std::vector<int64_t> layers;
    for (const auto& exit : exits.config().exits) layers.push_back(exit.layer);
    return layers;
  }
  nlohmann::json summary(const std::string& run) const { return load_json(path(run) / "validation.json"); }
};

TEST_F(ExitStages, AModelOfRandomWeightsIsTrainedAsCalmIs) {
  const std::string shape =
      "[architecture]\nwidth = 8\nheads = 1\nhead_width = 8\nff_width = 8\nencoder_layers = 1\ndecoder_layers = 4\n";
  run(exits("loss = \"calm_weighted\"\n", shape, "validation.bleu_examples = 2\n"), "calm");
  const auto trained = exits_of(path("calm/model"));
  EXPECT_THAT(layers_of(*trained), ElementsAre(1, 2, 3));
  EXPECT_TRUE(trained->parameters().empty());
  EXPECT_EQ(trained->config().model, "calm/model");
  EXPECT_EQ(trained->config().model_hash, model::model_hash(path("calm/model")));
  EXPECT_EQ(summary("calm")["model"]["exits"].size(), 3u);
  EXPECT_TRUE(summary("calm")["model"].contains("bleu"));
}

TEST_F(ExitStages, ASecondStageGoesOnFromTheNormsOfTheFirst) {
  const std::string weighted = "loss = \"weighted\"\nlayers = [1, 2]\nweights = [0.2, 0.3, 0.5]\nown_norms = true\n";
  run(exits(weighted), "first");
  const auto first = exits_of(path("first/model"));
  EXPECT_THAT(layers_of(*first), ElementsAre(1, 2));
  ASSERT_EQ(first->parameters().size(), 2u);
  const auto begun = [&](const std::string& table, const std::string& directory) {
    run(exits(table, option("from", "first/model"), "optimizer.lr = 1e-30\n"), directory);
    return exits_of(path(directory) / "model");
  };
  const auto second = begun("layers = [2]\nown_norms = true\n", "second");
  EXPECT_THAT(layers_of(*second), ElementsAre(2));
  EXPECT_TRUE(second->parameters().at("exit.2.norm.weight").equal(first->parameters().at("exit.2.norm.weight")));
  EXPECT_TRUE(begun("layers = [2]\n", "shared")->parameters().empty());
}

TEST_F(ExitStages, ATeacherTeachesTheExits) {
  save("teacher", 1, 8);
  run(exits("layers = [2]\n", option("from", "target") + option("teacher", "teacher"),
            "objective.name = \"distill\"\n"),
      "taught");
  EXPECT_TRUE(summary("taught")["model"]["exits"][0].contains("overlap"));
}

TEST_F(ExitStages, HeadsLieInACopyOfTheModel) {
  run("heads", heads("layers = [1, 2]\nform = \"low_rank\"\nrank = 3\nown_norms = true\n"), "heads");
  EXPECT_EQ(model::model_hash(path("heads/model")), model::model_hash(path("target")));
  EXPECT_TRUE(data::has_tokenizer(path("heads/model")));
  const auto trained = exits_of(path("heads/model"));
  EXPECT_THAT(layers_of(*trained), ElementsAre(1, 2));
  EXPECT_EQ(trained->config().exits[0].head, model::ExitHead::kLowRank);
  EXPECT_EQ(trained->config().exits[0].rank, 3);
  EXPECT_EQ(trained->config().model, path("target").string());
  EXPECT_GT(largest(trained->parameters().at("exit.1.head.up")), 0);
  EXPECT_TRUE(summary("heads")["model"]["exits"][1].contains("overlap")) << "against the model's last layer";
}

TEST_F(ExitStages, HeadsLearnFromTheModelsLastLayer) {
  run("heads", heads("layers = [1]\n", "objective.name = \"distill\"\n"), "distilled");
  EXPECT_EQ(exits_of(path("distilled/model"))->config().exits[0].head, model::ExitHead::kFull);
}

// Table 4 of Yang et al. 2024.
TEST_F(ExitStages, HeadsAreTrainedAsInThePaperUnlessToldOtherwise) {
  Problems problems;
  const auto table = toml::parse(common() + option("model", "target") + "layers = [1]\n");
  const auto training = stage_kinds().find("heads")->check(table, "t", problems).options["training"];
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(training["length"], "3 epochs");
  EXPECT_EQ(training["optimizer"]["name"], "adamw");
  EXPECT_EQ(training["optimizer"]["lr"], 2e-5);
  EXPECT_EQ(training["optimizer"]["weight_decay"], 0);
  EXPECT_EQ(training["schedule"]["warmup"], "4 %");
  // 128 texts of up to 2048 tokens a step.
  const auto rows = training["batches"]["max_rows"].get<int64_t>();
  EXPECT_EQ(rows * training["accumulate"].get<int64_t>(), 128);
  EXPECT_GE(training["batches"]["token_budget"].get<int64_t>(), rows * 2048);
}

TEST_F(ExitStages, ValidateFindsWhatTheTableAloneShows) {
  EXPECT_THAT(problems_of(exits("layers = [1, 2]\n")), AllOf(HasSubstr("exits.layers"), HasSubstr("one layer")));
  EXPECT_THAT(problems_of(exits("layers = [1]\nweights = [1, 1]\n")),
              AllOf(HasSubstr("exits.weights"), HasSubstr("none given")));
  EXPECT_THAT(problems_of(exits("loss = \"calm_weighted\"\nlayers = [1]\n")), HasSubstr("every layer"));
  EXPECT_THAT(problems_of(exits("loss = \"weighted\"\nlayers = [1, 2]\nweights = [1, 1]\n")), HasSubstr("3 numbers"));
  EXPECT_THAT(problems_of(exits("loss = \"weighted\"\nlayers = [1]\nweights = [0, 1]\n")), HasSubstr("above 0"));
  EXPECT_THAT(problems_of(exits("loss = \"weighted\"\nlayers = [2, 2]\nweights = [1, 1, 1]\n")),
              HasSubstr("given twice"));
  EXPECT_THAT(problems_of(exits("loss = \"weighted\"\nlayers = [2, 1]\nweights = [1, 1, 1]\n")),
              HasSubstr("out of order"));
  EXPECT_THAT(problems_of(exits("layers = [4]\n", "[architecture]\ndecoder_layers = 4\n")), HasSubstr("in 1..3"));
  EXPECT_THAT(problems_of(exits("loss = \"calm_weighted\"\n", "[architecture]\ndecoder_layers = 1\n")),
              HasSubstr("one decoder layer has no exits"));
  EXPECT_THAT(problems_of(exits("", option("from", "target") + "[tandem]\n" + option("primary", "target"))),
              AllOf(HasSubstr("of one kind"), HasSubstr("`exits`")));
  EXPECT_THAT(problems_of(heads("layers = []\n"), "heads"), HasSubstr("no heads"));
  EXPECT_THAT(problems_of(heads("layers = [2, 2]\n"), "heads"), HasSubstr("given twice"));
  EXPECT_THAT(problems_of(heads("layers = [0]\n"), "heads"), HasSubstr("layers"));
  EXPECT_THAT(problems_of(heads("layers = [1]\nform = \"low_rank\"\n"), "heads"), HasSubstr("need a rank"));
  EXPECT_THAT(problems_of(heads("layers = [1]\nrank = 4\n"), "heads"), HasSubstr("no rank"));
  EXPECT_THAT(problems_of(heads("layers = [1]\n", "dropout = 0.1\n"), "heads"), HasSubstr("frozen"));
  EXPECT_THAT(problems_of(heads("layers = [1]\n",
                                "objective = { name = \"distill\", distill = { on_policy = { share = 0.5 } } }\n"),
                          "heads"),
              HasSubstr("no samples to learn from"));
  EXPECT_EQ(problems_of(heads("layers = [1, 2]\n"), "heads"), "no error");
}

TEST_F(ExitStages, WhatDoesNotFitTheModelIsRefusedBeforeAnythingIsTrained) {
  EXPECT_THAT(stage_error(exits("layers = [3]\n")), AllOf(HasSubstr("exits.layers"), HasSubstr("in 1..2")));
  EXPECT_THAT(heads_error("layers = [1, 7]\n"), AllOf(HasSubstr("in 1..2"), HasSubstr("7")));
  EXPECT_THAT(heads_error("layers = [1]\nform = \"low_rank\"\nrank = 17\n"), AllOf(HasSubstr("rank"), HasSubstr("16")));
  EXPECT_THAT(stage_error(heads("layers = [1]\n", "validation.bleu_examples = 2\n"), "heads"),
              HasSubstr("cannot decode on their own"));
  save("other", 3, 16, tokenizer_->vocabulary() + 3);
  EXPECT_EQ(stage_error(heads("layers = [1]\n", "", "other"), "heads"), "no error") << "padded vocabularies serve";
}

// The exits of another model, put into its directory by hand.
TEST_F(ExitStages, ExitsOfAnotherModelAreNotTakenUp) {
  save("other", 3, 8);
  run("heads", heads("layers = [1]\n"), "heads");
  fs::create_directories(path("other/draftsmith"));
  fs::copy(path("heads/model/draftsmith/exits"), path("other/draftsmith/exits"), fs::copy_options::recursive);
  EXPECT_THAT(stage_error(exits("", option("from", "other"))), AllOf(HasSubstr("another model"), HasSubstr("other")));
}

}  // namespace
}  // namespace draftsmith::recipes
