// Train stages that distil, and those of new models.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/families/family.h"
#include "model/files/model_directory.h"
#include "tests/recipes/stages/stage_fixtures.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

class DistillationStages : public TrainStageTest {
 protected:
  DistillationStages() {
    save("teacher", 2, 16);
    save("student", 1, 8);
  }

  // A train stage of two steps that distils with `distill`'s options; `more` of its table.
  toml::table stage(const std::string& more, const std::string& distill = "") const {
    return toml::parse(option("corpus", "corpus.h5") + option("tokenizer", "spiece.model") + option("from", "student") +
                       more + "\n[training]\nlength = \"2 steps\"\n" +
                       "[training.objective]\nname = \"distill\"\n[training.objective.distill]\n" + distill);
  }

  std::map<std::string, at::Tensor> trained(const toml::table& table, const std::string& directory) const {
    run("train", table, directory);
    return model::load_model(path(directory) / "model", {.pack = false})->parameters();
  }
};

TEST_F(DistillationStages, AWholeCacheTeachesAsTheLiveTeacher) {
  run("teacher-logits", toml::parse(option("model", "teacher") + option("corpus", "corpus.h5") + "k = 0\n"), "logits");
  const auto live = trained(stage(option("teacher", "teacher")), "live"),
             cached = trained(stage(option("teacher_logits", "logits/teacher_logits.h5")), "cached"),
             start = model::load_model(path("student"), {.pack = false})->parameters();
  double moved = 0;
  for (const auto& [name, parameter] : live) {
    const double change = difference(parameter, cached.at(name));
    EXPECT_LT(change, 2e-4) << name;  // fp16, in two steps of 1e-3 at most
    moved = std::max(moved, difference(parameter, start.at(name)));
  }
  EXPECT_GT(moved, 1e-3);
}

// So does a copy of it.
TEST_F(DistillationStages, AFrozenPrimaryNamedAsTeacherTeachesLikeTheUnnamedOne) {
  fs::copy(path("teacher"), path("copy"), fs::copy_options::recursive);
  const std::string validation = option("validation_corpus", "corpus.h5");
  const std::string tandem = "[tandem]\n" + option("primary", "teacher");
  run("train", stage(validation + tandem), "own");
  for (const std::string teacher : {"teacher", "copy"}) {
    run("train", stage(validation + option("teacher", teacher) + tandem), "named " + teacher);
    for (const std::string file : {"model/model.safetensors", "validation.json"}) {
      EXPECT_EQ(read_file(path("own") / file), read_file(path("named " + teacher) / file)) << teacher << " " << file;
    }
  }
  EXPECT_THAT(read_file(path("own/validation.json")), HasSubstr("overlap"));
}

TEST_F(DistillationStages, WhatCannotTeachIsRefusedBeforeAnythingRuns) {
  EXPECT_THAT(problems_of(stage("")), HasSubstr("needs a teacher"));
  EXPECT_THAT(problems_of(stage(option("teacher", "teacher"), "[training.validation]\npatience = 3\n")),
              HasSubstr("nothing is validated"));
  EXPECT_THAT(problems_of(stage(option("teacher_logits", "logits.h5"), "on_policy.share = 0.5\n")),
              AllOf(HasSubstr("need a teacher that runs"), HasSubstr("teacher_logits")));
  EXPECT_THAT(problems_of(stage("[tandem]\n" + option("primary", "teacher"), "on_policy.share = 0.5\n")),
              HasSubstr("no samples of its own"));
  EXPECT_THAT(problems_of(stage(option("teacher", "teacher"), "temperature = 0.0\n")), HasSubstr("above 0"));
  EXPECT_EQ(problems_of(stage(option("teacher", "teacher"), "on_policy.share = 0.5\n")), "no error");
}

TEST_F(DistillationStages, ACacheOfAnotherTemperatureIsRefused) {
  run("teacher-logits",
      toml::parse(option("model", "teacher") + option("corpus", "corpus.h5") + "k = 4\ntemperature = 2.0\n"), "logits");
  EXPECT_THAT(stage_error(stage(option("teacher_logits", "logits/teacher_logits.h5"))),
              AllOf(HasSubstr("expected: temperature 1"), HasSubstr("found:    temperature 2")));
}

using FreshModels = TrainStageTest;

TEST_F(FreshModels, OfEveryFamilyAreTrainedFromScratch) {
  write_corpus("prompts.h5", {{"prompts", "true"}});
  for (const model::Family& family : model::families()) {
    SCOPED_TRACE(family.name);
    const std::string shape = fmt::format(
        "[architecture]\nfamily = \"{}\"\nwidth = 16\nheads = 2\nkv_heads = {}\nhead_width = 8\nff_width = {}\n"
        "encoder_layers = 1\ndecoder_layers = 4\nmax_positions = 64\n",
        family.name, family.shapes.grouped_keys ? 1 : 0, family.shapes.ff_factor > 0 ? 64 : 24);
    run(two_steps(shape, "dropout = 0\nlog_every = 1\n", family.base.encoder_decoder ? "corpus.h5" : "prompts.h5"),
        family.name);
    std::vector<double> losses;
    for (const std::string& line : lines_of(read_file(path(family.name) / "metrics.jsonl"))) {
      if (const auto entry = nlohmann::json::parse(line); entry.contains("loss")) losses.push_back(entry["loss"]);
    }
    ASSERT_EQ(losses.size(), 2U);
    EXPECT_LT(losses[1], losses[0] - 1e-3) << "both steps see all examples";
    const auto trained = model::load_model(path(family.name) / "model", {.pack = false});
    EXPECT_EQ(trained->config().family, family.name);
    EXPECT_EQ(trained->config().unrotated_layers.empty(), family.shapes.unrotated_interval == 0);
    for (const auto& [name, value] : trained->parameters()) EXPECT_TRUE(at::isfinite(value).all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace draftsmith::recipes
