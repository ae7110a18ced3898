// Stages that continue others in a recipe: they share what they must, inherit the rest, and are other stages.
#include <gmock/gmock.h>

#include "recipes/pipeline.h"
#include "recipes/recipe.h"
#include "tests/recipes/stages/train_stage_fixtures.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
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

TEST_F(ContinuedTraining, HeadsGoOnToo) {
  const auto heads = [&](const std::string& name, int64_t length) {
    return "[" + name + "]\nkind = \"heads\"\nlayers = [1]\n" + option("corpus", "corpus.h5") +
           option("tokenizer", "spiece.model") + option("model", "start") + "training.length = \"" +
           std::to_string(length) +
           " steps\"\ntraining.schedule.name = \"constant\"\ntraining.schedule.warmup = \"\"\n";
  };
  run_all(heads("short", 2) + "[long]\nkind = \"heads\"\ncontinue_from = \"@short\"\ntraining.length = \"4 steps\"\n" +
          heads("whole", 4));
  const auto exits = [&](const std::string& stage) {
    return read_file(path("work") / stage / "model" / "draftsmith" / "exits" / "exits.safetensors");
  };
  EXPECT_TRUE(exits("long") == exits("whole"));
  EXPECT_FALSE(exits("long") == exits("short"));
}

}  // namespace
}  // namespace draftsmith::recipes
