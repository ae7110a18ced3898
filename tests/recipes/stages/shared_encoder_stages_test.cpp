// Train stages of drafters that share their target's encoder: what a recipe says becomes a directory that drafts, and
// what does not fit is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "infer/drafters/registry.h"
#include "model/models/shared_encoder.h"
#include "tests/recipes/stages/train_stage_fixtures.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A tokenizer, a corpus, a target of three decoder layers and a small model of one.
class SharedEncoderStages : public TrainStageTest {
 protected:
  void SetUp() override {
    TrainStageTest::SetUp();
    save("target", 3, 16);
    save("small", 1, 8);
  }

  toml::table stage(const std::string& more, const std::string& training = "") const {
    return toml::parse("corpus = \"" + path("corpus.h5").string() + "\"\ntokenizer = \"" +
                       path("spiece.model").string() + "\"\nvalidation_corpus = \"" + path("corpus.h5").string() +
                       "\"\n" + more + "\n[training]\nlength = \"2 steps\"\ntensorboard = false\n" + training);
  }
  std::string shared(const std::string& from, const std::string& target, const std::string& more = "") const {
    return option("from", from) + "[shared_encoder]\n" + option("target", target) + more;
  }
  model::TransformerConfig made(const std::string& name) const {
    return model::load_shared_encoder(path(name), path("target"))->config();
  }

  const std::string shape_ =
      "[architecture]\nwidth = 12\nheads = 1\nhead_width = 8\nff_width = 8\nencoder_layers = 2\ndecoder_layers = 2\n";
};

TEST_F(SharedEncoderStages, AModelsDecoderLearnsToReadTheTargetsEncoder) {
  run(stage(option("teacher", "target") + shared("small", "target"),
            "validation = { bleu_examples = 3, draft_examples = 3, measure = \"overlap\" }\n"),
      "drafter");
  EXPECT_EQ(made("drafter/model").width, 8);
  EXPECT_EQ(made("drafter/model").shared_encoder_width, 16);
  EXPECT_TRUE(fs::equivalent(model::shared_encoder_target(path("drafter/model")), path("target")));
  const auto summary = load_json(path("drafter/validation.json")).at("model");
  for (const char* measure : {"loss", "accuracy", "bleu", "overlap", "alpha_forced", "tokens_per_target_run"}) {
    EXPECT_TRUE(summary.contains(measure)) << measure << " " << summary;
  }
  const auto drafter = infer::load_drafter(infer::parse_drafter(path("drafter/model")), path("target"), {});
  EXPECT_NE(drafter, nullptr);
}

TEST_F(SharedEncoderStages, RandomWeightsAndAUnitProjectionAreAStartToo) {
  run(stage(shape_ + "[shared_encoder]\n" + option("target", "target") + "projection = \"identity\"\n"), "fresh");
  EXPECT_EQ(made("fresh/model").decoder_layers, 2);
  EXPECT_EQ(made("fresh/model").encoder_layers, 0);
  const auto loaded = model::load_shared_encoder(path("fresh/model"), {}, {.pack = false});
  const at::Tensor moved = loaded->parameters().at("encoder_projection.weight") - at::eye(12, 16);
  EXPECT_LT(moved.abs().max().item<double>(), 0.1) << "two steps away from the unit matrix";
}

// Without a teacher the target teaches; a second stage goes on from the first with its target.
TEST_F(SharedEncoderStages, ASecondStageDistilsFromTheTargetThatTheFirstRecorded) {
  run(stage(shared("small", "target")), "first");
  for (const bool named : {false, true}) {
    const std::string name = named ? "named" : "unnamed";
    run(stage((named ? option("teacher", "target") : "") + option("from", "first/model") + "[shared_encoder]\n",
              "objective = { name = \"distill\", distill = { lambda = 0.5, on_policy = { share = 0.5 } } }\n"
              "validation = { measure = \"overlap\" }\n"),
        name);
    EXPECT_TRUE(fs::equivalent(model::shared_encoder_target(path(name + "/model")), path("target")));
    EXPECT_GT(load_json(path(name + "/validation.json")).at("model").at("overlap").get<double>(), 0);
  }
  EXPECT_EQ(read_file(path("named/model/model.safetensors")), read_file(path("unnamed/model/model.safetensors")));
  save("teacher", 2, 8);
  run(stage(option("teacher", "teacher") + option("from", "first/model") + "[shared_encoder]\n",
            "objective = { name = \"distill\" }\n"),
      "another teacher");
  EXPECT_NE(read_file(path("named/model/model.safetensors")),
            read_file(path("another teacher/model/model.safetensors")));
}

TEST_F(SharedEncoderStages, WhatDoesNotFitIsRefusedNamingBoth) {
  EXPECT_THAT(stage_error(stage(option("from", "small") + "[shared_encoder]\n")), HasSubstr("needs a target"));
  run(stage(shared("small", "target")), "first");
  save("other", 2, 16);
  EXPECT_THAT(stage_error(stage(shared("first/model", "other"))),
              AllOf(HasSubstr("another target"), HasSubstr(path("other"))));
  EXPECT_THAT(stage_error(stage(shared("first/model", "target", "projection = \"random\"\n"))),
              HasSubstr("has a projection already"));
  EXPECT_THAT(stage_error(stage(option("from", "first/model"))), HasSubstr("no encoder of its own"));
  EXPECT_THAT(stage_error(stage(shared("small", "first/model"))), HasSubstr("no encoder of its own"));
}

TEST_F(SharedEncoderStages, ValidateFindsWhatTheTableAloneShows) {
  EXPECT_THAT(problems_of(stage(shape_ + "[shared_encoder]\n")), HasSubstr("needs a target"));
  EXPECT_THAT(problems_of(stage("[architecture]\nfamily = \"llama\"\n[shared_encoder]\n" + option("target", "target"))),
              HasSubstr("encoder-decoder without its own"));
  EXPECT_THAT(problems_of(stage(shared("small", "target", "projection = \"zero\"\n"))),
              HasSubstr("shared_encoder.projection"));
  EXPECT_THAT(problems_of(stage(shared("small", "target") + "[tandem]\n" + option("primary", "target"))),
              HasSubstr("of one kind"));
  EXPECT_EQ(problems_of(stage(shared("small", "target"), "objective = { name = \"distill\" }\n")), "no error");
}

}  // namespace
}  // namespace draftsmith::recipes
