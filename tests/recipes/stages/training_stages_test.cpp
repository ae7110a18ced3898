// Train stages that distil, and stages that continue others: they share what they must and inherit the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "recipes/pipeline.h"
#include "recipes/recipe.h"
#include "tests/recipes/stages/stage_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ContinuedTraining : public TrainStageTest {
 protected:
  void SetUp() override {
    TrainStageTest::SetUp();
    save("start", 2, 8);
  }

  // A train stage of `length` steps; `more`: lines beside its options.
  std::string stage(const std::string& name, int64_t length, const std::string& more = "") const {
    return "[" + name + "]\nkind = \"train\"\n" + option("corpus", "corpus.h5") + option("tokenizer", "spiece.model") +
           option("from", "start") + "training.length = \"" + std::to_string(length) +
           " steps\"\ntraining.optimizer.lr = 1e-2\ntraining.batches.max_rows = 2\n" + more;
  }

  static std::string continuing(const std::string& name, const std::string& parent, int64_t length) {
    return "[" + name + "]\nkind = \"train\"\ncontinue_from = \"" + parent + "\"\ntraining.length = \"" +
           std::to_string(length) + " steps\"\n";
  }

  std::vector<StageResult> run_all(const std::string& text) const {
    write_file_atomic(path("recipe.toml"), text);
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    return run_recipe(load_recipe(path("recipe.toml"), {}),
                      {.work = path("work"), .until = "", .execution = execution});
  }

  std::string weights(const std::string& stage) const {
    return read_file(path("work") / stage / "model" / "model.safetensors");
  }
};

TEST_F(ContinuedTraining, AStageGoesOnFromAnotherWithItsOptions) {
  run_all(stage("short", 3) + continuing("long", "@short", 6) + stage("whole", 6));
  EXPECT_TRUE(weights("long") == weights("whole"));
  EXPECT_FALSE(weights("long") == weights("short"));
}

TEST_F(ContinuedTraining, AFailedRunsDirectoryIsContinuedByAStageWithItsOptions) {
  const auto results = run_all(stage("short", 3));
  fs::remove(results[0].directory / "DONE");  // as if it had failed
  const std::string parent = "continue_from = \"" + results[0].directory.string() + "\"\n";
  run_all(stage("again", 6, parent) + stage("whole", 6));
  EXPECT_TRUE(weights("again") == weights("whole"));
}

TEST_F(ContinuedTraining, IsAnotherStageWhenItsParentIs) {
  const std::string child = continuing("long", "@short", 6);
  const auto first = run_all(stage("short", 3) + child), same = run_all(stage("short", 3) + child);
  EXPECT_TRUE(same[1].skipped);
  const auto other = run_all(stage("short", 4) + child);
  EXPECT_NE(first[1].directory, other[1].directory);
}

TEST_F(ContinuedTraining, RefusesOtherSettingsAndInputsByName) {
  EXPECT_THAT(error_of([&] { run_all(stage("short", 3) + continuing("long", "@short", 6) + "training.seed = 9\n"); }),
              HasSubstr("training.seed"));
  save("other", 2, 8);
  EXPECT_THAT(
      error_of([&] { run_all(stage("short", 3) + continuing("long", "@short", 6) + option("from", "corpus.h5")); }),
      HasSubstr("corpus.h5"));
  write_file_atomic(path("other/note.txt"), "another directory");
  EXPECT_THAT(error_of([&] { run_all(stage("short", 3) + continuing("long", "@short", 6) + option("from", "other")); }),
              HasSubstr("from: differs from the run that `continue_from` names"));
}

TEST_F(ContinuedTraining, RefusesStagesOfOtherKinds) {
  const std::string table = "[table]\nkind = \"ngram\"\n" + option("corpus", "corpus.h5");
  EXPECT_THAT(error_of([&] { run_all(table + continuing("long", "@table", 6)); }),
              HasSubstr("continues another of its own kind"));
  EXPECT_THAT(error_of([&] { run_all(continuing("long", "@nothing", 6)); }), HasSubstr("does not come before"));
}

class DistillationStages : public TrainStageTest {
 protected:
  void SetUp() override {
    TrainStageTest::SetUp();
    save("teacher", 2, 16);
    save("student", 1, 8);
  }

  // A train stage of two steps that distils with `distill`'s options; `more` of its table.
  toml::table stage(const std::string& more, const std::string& distill = "") const {
    return toml::parse(option("corpus", "corpus.h5") + option("tokenizer", "spiece.model") + option("from", "student") +
                       more + "\n[training]\nlength = \"2 steps\"\ntensorboard = false\n" +
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

// It teaches and is measured against all the same. Its copy cannot be loaded: the generation settings, which are no
// part of what a model is, are malformed.
TEST_F(DistillationStages, AFrozenPrimaryNamedAsTeacherIsNotLoadedAgain) {
  fs::copy(path("teacher"), path("copy"), fs::copy_options::recursive);
  write_file_atomic(path("copy/generation_config.json"), "{");
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
  // A primary that is trained is soon another than the teacher that it began as.
  EXPECT_THAT(stage_error(stage(option("teacher", "copy") + tandem + "configuration = \"both_secondary_loss\"\n")),
              HasSubstr("generation_config.json"));
}

TEST_F(DistillationStages, WhatCannotTeachIsRefusedBeforeAnythingRuns) {
  EXPECT_THAT(problems_of(stage("")), HasSubstr("needs a teacher"));
  EXPECT_THAT(problems_of(stage(option("teacher_logits", "logits.h5"), "on_policy.share = 0.5\n")),
              AllOf(HasSubstr("need a teacher that runs"), HasSubstr("teacher_logits")));
  EXPECT_THAT(problems_of(stage("[tandem]\n" + option("primary", "teacher"), "on_policy.share = 0.5\n")),
              HasSubstr("a Tandem"));
  EXPECT_THAT(problems_of(stage(option("teacher", "teacher"), "temperature = 0.0\n")), HasSubstr("above 0"));
  EXPECT_EQ(problems_of(stage(option("teacher", "teacher"), "on_policy.share = 0.5\n")), "no error");
}

TEST_F(DistillationStages, ACacheOfAnotherTemperatureIsRefused) {
  run("teacher-logits",
      toml::parse(option("model", "teacher") + option("corpus", "corpus.h5") + "k = 4\ntemperature = 2.0\n"), "logits");
  EXPECT_THAT(stage_error(stage(option("teacher_logits", "logits/teacher_logits.h5"))),
              AllOf(HasSubstr("expected: temperature 1"), HasSubstr("found:    temperature 2")));
}

}  // namespace
}  // namespace draftsmith::recipes
