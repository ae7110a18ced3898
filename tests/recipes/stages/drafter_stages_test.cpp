// Train stages of Tandems, of models in blocks, of drafters that share their target's encoder, of exits and heads: what
// a recipe says becomes a directory that loads, and what does not fit is refused by name.
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/registry.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "recipes/stages/starting_models.h"
#include "tests/recipes/stages/stage_fixtures.h"
#include "tests/support/tandem.h"
#include "tests/support/tensors.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// A tokenizer, corpora for both kinds of models, a primary of three decoder layers and a small model of one.
class TandemStages : public TrainStageTest {
 protected:
  TandemStages() {
    write_corpus("prompts.h5", {{"prompts", "true"}});
    save("primary", 3, 16);
    save("small", 1, 8);
  }

  // A train stage of two steps, with `more` of its table.
  toml::table stage(const std::string& more, const std::string& corpus = "corpus.h5") const {
    return two_steps(more, "", corpus);
  }
  std::string tandem(const std::string& from, const std::string& primary, const std::string& more = "") const {
    return option("from", from) + "[tandem]\n" + option("primary", primary) + more;
  }
};

TEST(FrozenPrimary, IsBf16WhereTrainingIsAndTheDeviceIsFastAtIt) {
  EXPECT_EQ(place_of_training("bf16", at::kCUDA).frozen, at::kBFloat16);
  EXPECT_FALSE(place_of_training("bf16", at::kCPU).packs);  // and is fp32, with products in bf16
  EXPECT_TRUE(place_of_training("fp32", at::kCUDA).packs);
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
  EXPECT_EQ(fs::canonical(model::companion_directory(model::tandem_kind(), path("second/model"))),
            fs::canonical(path("second/model/primary")));
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
  for (const std::string exits : {"", "[exits]\nlayers = [1]\n"}) {
    EXPECT_THAT(problems_of(stage(shape + exits + "[training.validation]\nmeasure = \"overlap\"\n")),
                HasSubstr("a teacher"));
  }
  EXPECT_THAT(problems_of(stage(shape + "[deep_tandem.large]\nseed = 7\ndropout = 0.3\ntied_head = false\n")),
              AllOf(HasSubstr("large.seed"), HasSubstr("large.dropout"), HasSubstr("large.tied_head")));
  EXPECT_THAT(problems_of(stage(option("teacher", "primary") + "block_prediction = 4\n" + shape)),
              HasSubstr("predicts other tokens than a teacher"));
  EXPECT_EQ(problems_of(stage(tandem("small", "primary", "block = 5\nlayer_map = [0]\n"))), "no error");
}

TEST_F(TandemStages, ModelsInBlocksAreTrainedFromTheirShapes) {
  const std::string shape =
      "family = \"llama\"\nwidth = 8\nheads = 2\nhead_width = 4\nff_width = 8\ndecoder_layers = 1\n";
  run(stage("block_prediction = 2\n[architecture]\n" + shape, "prompts.h5"), "blocks");
  EXPECT_EQ(model::load_model(model::ModelDirectory(path("blocks/model"), model::block_prediction_kind()))
                ->config()
                .block_attention,
            2);
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

// A drafter is distilled from the target whose states it reads, pruned or not; a second stage goes on from it.
TEST_F(TandemStages, ADrafterOfFeaturesIsTrainedAndDrafts) {
  const std::string distill = "objective = { name = \"distill\" }\nvalidation = { measure = \"overlap\" }\n";
  const std::string features = "[features]\n" + option("target", "primary") + "decoder_layers = 1\n";
  run(two_steps(features + "layers = [1, 3]\nunrolled = 2\nblock = true\nmarkov_rank = 3\n" +
                    option("vocabulary_from", "corpus.h5") + "vocabulary_size = 9\n",
                distill),
      "first");
  const auto made = model::load_with_companion(model::features_kind(), path("first/model"), path("primary"));
  EXPECT_THAT(made->config().features.layers, ElementsAre(1, 3));
  EXPECT_EQ(made->config().features.unrolled, 2);
  EXPECT_TRUE(made->config().features.block);
  EXPECT_EQ(made->config().vocabulary_rows(), 9);
  EXPECT_GT(load_json(path("first/validation.json"))["model"]["overlap"].get<double>(), 0) << "against the target";
  run(two_steps(option("from", "first/model") + option("teacher", "primary") + "[features]\nunrolled = 4\n", distill),
      "second");
  EXPECT_EQ(model::read_settings(path("second/model")).config.features.unrolled, 4);
  EXPECT_EQ(model::read_settings(path("second/model")).config.features.markov_rank, 3);
  EXPECT_NE(infer::load_drafter(infer::parse_drafter(path("second/model")), path("primary"), {}), nullptr);

  EXPECT_THAT(problems_of(two_steps("[features]\nvocabulary_size = 3\nmarkov_rank = 2\n[architecture]\n")),
              AllOf(HasSubstr("reads a target"), HasSubstr("tokens are counted"), HasSubstr("its target's layers"),
                    HasSubstr("needs no bias")));
  EXPECT_THAT(stage_error(two_steps(features + "layers = [4]\n")), HasSubstr("does not have"));
  EXPECT_THAT(stage_error(two_steps(features + option("vocabulary_from", "corpus.h5") + "vocabulary_size = 1\n")),
              HasSubstr("features.vocabulary_size"));

  const std::string other = option("from", "small") + "[features]\n" + option("target", "primary");
  EXPECT_THAT(stage_error(two_steps(other)), AllOf(HasSubstr("a features drafter"), HasSubstr("an ordinary")));
  const std::string again = option("from", "first/model") + "[features]\n" + option("vocabulary_from", "corpus.h5");
  const std::string problems =
      problems_of(two_steps(again + "decoder_layers = 1\nlayers = [1]\nseed = 1\nstart = \"random\"\nblock = true\n"));
  for (const char* name : {"block", "decoder_layers", "layers", "seed", "start", "vocabulary_from"}) {
    EXPECT_THAT(problems, HasSubstr(std::string("features.") + name));
  }
}

// Cached states of the target train as its passes do: a first stage, with fewer ids too, and one that goes on from it.
TEST_F(TandemStages, ADrafterOfFeaturesReadsCachedStates) {
  const std::string files = option("corpus", "corpus.h5");
  run("teacher-logits", toml::parse(option("model", "primary") + files + "k = 4\nlayers = [1, 3]\n"), "cache");
  run("teacher-logits", toml::parse(option("model", "primary") + files + "k = 4\nlayers = [1, 2]\n"), "low");
  const std::string features = "[features]\n" + option("target", "primary");
  const auto trained = [&](const std::string& cache, const std::string& more, const std::string& name) {
    const std::string stored = cache.empty() ? "" : option("teacher_logits", cache + "/teacher_logits.h5");
    const toml::table table = two_steps(stored + more, "objective = { name = \"distill\" }\n");
    return load_json(path(run("train", table, name) / "validation.json"))["model"]["loss"].get<double>();
  };
  const std::string read = features + "vocabulary_size = 9\n" + option("vocabulary_from", "corpus.h5");
  const double live = trained("", read, "live");
  EXPECT_NEAR(trained("cache", read, "cached"), live, 1e-3 * live);
  const std::string second = option("from", "live/model") + "[features]\nunrolled = 2\n";
  const double live_second = trained("", second, "live second");
  EXPECT_NEAR(trained("cache", second, "cached second"), live_second, 1e-3 * live_second);
  EXPECT_GT(trained("low", features + "layers = [1]\n", "of the stored ids"), 0) << "the last layer is not stored";
  const auto refused = [&](const std::string& more) {
    return stage_error(two_steps(option("teacher_logits", "cache/teacher_logits.h5") + more));
  };
  EXPECT_THAT(refused(features + "layers = [1, 2]\n"),
              AllOf(HasSubstr("expected: layers 1, 2"), HasSubstr("found:    layers 1, 3")));
  EXPECT_THAT(refused("[features]\n" + option("target", "small") + "layers = [1]\n"),
              AllOf(HasSubstr("another teacher"), HasSubstr(path("small"))));
  EXPECT_THAT(
      error_of([&] { run("teacher-logits", toml::parse(option("model", "small") + files + "layers = [2]"), "x"); }),
      HasSubstr("from 0 (embedding output) to 1"));
}

// A target of three decoder layers and a small model of one.
class SharedEncoderStages : public TrainStageTest {
 protected:
  SharedEncoderStages() {
    save("target", 3, 16);
    save("small", 1, 8);
  }

  std::string shared(const std::string& from, const std::string& target, const std::string& more = "") const {
    return option("from", from) + "[shared_encoder]\n" + option("target", target) + more;
  }
};

TEST_F(SharedEncoderStages, AModelsDecoderLearnsToReadTheTargetsEncoder) {
  run(two_steps(option("teacher", "target") + shared("small", "target"),
                "validation = { bleu_examples = 3, draft_examples = 3, measure = \"overlap\" }\n"),
      "drafter");
  const auto made =
      model::load_with_companion(model::shared_encoder_kind(), path("drafter/model"), path("target"))->config();
  EXPECT_EQ(made.width, 8);
  EXPECT_EQ(made.encoder_layers, 0);
  EXPECT_EQ(made.shared_encoder_width, 16);
  EXPECT_TRUE(
      fs::equivalent(model::companion_directory(model::shared_encoder_kind(), path("drafter/model")), path("target")));
  const auto summary = load_json(path("drafter/validation.json")).at("model");
  for (const char* measure : {"loss", "accuracy", "bleu", "overlap", "alpha_forced", "tokens_per_target_run"}) {
    EXPECT_TRUE(summary.contains(measure)) << measure << " " << summary;
  }
  const auto drafter = infer::load_drafter(infer::parse_drafter(path("drafter/model")), path("target"), {});
  EXPECT_NE(drafter, nullptr);
}

// Without a teacher the target teaches; a second stage goes on from the first with its target.
TEST_F(SharedEncoderStages, ASecondStageDistilsFromTheTargetThatTheFirstRecorded) {
  run(two_steps(shared("small", "target")), "first");
  for (const bool named : {false, true}) {
    const std::string name = named ? "named" : "unnamed";
    run(two_steps((named ? option("teacher", "target") : "") + option("from", "first/model") + "[shared_encoder]\n",
                  "objective = { name = \"distill\", distill = { lambda = 0.5, on_policy = { share = 0.5 } } }\n"
                  "validation = { measure = \"overlap\" }\n"),
        name);
    EXPECT_TRUE(fs::equivalent(model::companion_directory(model::shared_encoder_kind(), path(name + "/model")),
                               path("target")));
    EXPECT_GT(load_json(path(name + "/validation.json")).at("model").at("overlap").get<double>(), 0);
  }
  EXPECT_EQ(read_file(path("named/model/model.safetensors")), read_file(path("unnamed/model/model.safetensors")));
  save("teacher", 2, 8);
  run(two_steps(option("teacher", "teacher") + option("from", "first/model") + "[shared_encoder]\n",
                "objective = { name = \"distill\" }\n"),
      "another teacher");
  EXPECT_NE(read_file(path("named/model/model.safetensors")),
            read_file(path("another teacher/model/model.safetensors")));
}

TEST_F(SharedEncoderStages, WhatDoesNotFitIsRefusedNamingBoth) {
  EXPECT_THAT(stage_error(two_steps(option("from", "small") + "[shared_encoder]\n")), HasSubstr("needs a target"));
  run(two_steps(shared("small", "target")), "first");
  save("other", 2, 16);
  EXPECT_THAT(stage_error(two_steps(shared("first/model", "other"))),
              AllOf(HasSubstr("another target"), HasSubstr(path("other"))));
  EXPECT_THAT(stage_error(two_steps(shared("first/model", "target", "projection = \"random\"\n"))),
              HasSubstr("has a projection already"));
  EXPECT_THAT(stage_error(two_steps(option("from", "first/model"))), HasSubstr("no encoder of its own"));
  EXPECT_THAT(stage_error(two_steps(shared("small", "first/model"))), HasSubstr("no encoder of its own"));
}

TEST_F(SharedEncoderStages, ValidateFindsWhatTheTableAloneShows) {
  EXPECT_THAT(problems_of(two_steps("[architecture]\ndecoder_layers = 2\n"
                                    "[shared_encoder]\n")),
              HasSubstr("needs a target"));
  EXPECT_THAT(
      problems_of(two_steps("[architecture]\nfamily = \"llama\"\n[shared_encoder]\n" + option("target", "target"))),
      HasSubstr("encoder-decoder without its own"));
  EXPECT_THAT(problems_of(two_steps(shared("small", "target", "projection = \"zero\"\n"))),
              HasSubstr("shared_encoder.projection"));
  EXPECT_THAT(problems_of(two_steps(shared("small", "target") + "[tandem]\n" + option("primary", "target"))),
              HasSubstr("of one kind"));
  EXPECT_EQ(problems_of(two_steps(shared("small", "target"), "objective = { name = \"distill\" }\n")), "no error");
}

// A tokenizer, a corpus, and a target of three decoder layers.
class ExitStages : public TrainStageTest {
 protected:
  ExitStages() { save("target", 3, 16); }

  // Stages of two steps, with `more` of their tables.
  toml::table exits(const std::string& more, const std::string& start, const std::string& training = "") const {
    return two_steps(start + "\n[exits]\n" + more, training);
  }
  toml::table exits(const std::string& more) const { return exits(more, option("from", "target")); }
  toml::table heads(const std::string& more, const std::string& training = "", const std::string& of = "target") const {
    return two_steps(option("model", of) + more, "optimizer.lr = 1e-2\n" + training);
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
  const auto table = toml::parse(files() + option("model", "target") + "layers = [1]\n");
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
  const std::string weighted = "loss = \"weighted\"\n", calm = "loss = \"calm_weighted\"\n";
  const auto layers = [](int64_t count) { return "[architecture]\ndecoder_layers = " + std::to_string(count) + "\n"; };
  const std::vector<std::pair<toml::table, std::string>> wrong_exits{
      {exits("layers = [1, 2]\n"), "one layer"},
      {exits("layers = [1]\nweights = [1, 1]\n"), "none given"},
      {exits(calm + "layers = [1]\n"), "every layer"},
      {exits(weighted + "layers = [1, 2]\nweights = [1, 1]\n"), "3 numbers"},
      {exits(weighted + "layers = [1]\nweights = [0, 1]\n"), "above 0"},
      {exits(weighted + "layers = [2, 2]\nweights = [1, 1, 1]\n"), "given twice"},
      {exits(weighted + "layers = [2, 1]\nweights = [1, 1, 1]\n"), "out of order"},
      {exits("layers = [4]\n", layers(4)), "in 1..3"},
      {exits(calm, layers(1)), "one decoder layer has no exits"},
      {exits("", option("from", "target") + "[tandem]\n" + option("primary", "target")), "of one kind"}};
  for (const auto& [table, message] : wrong_exits) EXPECT_THAT(problems_of(table), HasSubstr(message));
  const std::string on_policy = "objective = { name = \"distill\", distill = { on_policy = { share = 0.5 } } }\n";
  const std::vector<std::pair<toml::table, std::string>> wrong_heads{
      {heads("layers = []\n"), "no heads"},
      {heads("layers = [2, 2]\n"), "given twice"},
      {heads("layers = [0]\n"), "layers"},
      {heads("layers = [1]\nform = \"low_rank\"\n"), "need a rank"},
      {heads("layers = [1]\nrank = 4\n"), "no rank"},
      {heads("layers = [1]\n", "dropout = 0.1\n"), "frozen"},
      {heads("layers = [1]\n", on_policy), "no samples to learn from"}};
  for (const auto& [table, message] : wrong_heads) EXPECT_THAT(problems_of(table, "heads"), HasSubstr(message));
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
