// inspect and verify: stages and their parts, results, and directories of models of our own kinds.
#include "recipes/inspection.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/tandem.h"
#include "recipes/pipeline.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResults = R"({"version": 1, "suite": "s", "environment": {}, "tasks": [
  {"name": "t", "baseline": {"name": "greedy"}, "runs": [{"name": "bild", "method": "bild"}]}]})";

// A work directory as a recipe leaves it: a finished stage with results and a (broken) model.
class Inspection : public testing::Test {
 protected:
  Inspection() { make_stage("eval", "eval-0123abcd", true); }

  void make_stage(const std::string& name, const std::string& directory, bool finished) const {
    make_directories(work_ / directory / "model");
    write_file_atomic(work_ / directory / "results.json", kResults);
    write_file_atomic(work_ / directory / "model" / "config.json", "{}");
    replace_link(work_ / name, directory);
    if (finished) write_done(work_ / directory, {.stage = name, .kind = "evaluate", .options = {{"a", 1}}});
  }

  static std::string inspect_error(const fs::path& path) {
    return error_of([&] { inspect(path); });
  }

  const TemporaryDirectory work_;
  const fs::path stage_ = work_ / "eval-0123abcd";
};

TEST_F(Inspection, BothCommandsNoticeAChangedPartOfAStage) {
  EXPECT_THAT(verify(stage_ / "results.json"), IsEmpty());
  EXPECT_THAT(inspect(stage_ / "results.json"), HasSubstr("task t: 1 runs"));
  std::string changed = kResults;
  changed.replace(changed.find("\"t\""), 3, "\"u\"");
  write_file_atomic(stage_ / "results.json", changed);  // still well formed
  const auto differs = AllOf(HasSubstr("eval/results.json"), HasSubstr("was changed after the stage had finished"));
  EXPECT_THAT(text_of(verify(work_ / "eval" / "results.json")), differs);
  EXPECT_THAT(inspect_error(work_ / "eval" / "results.json"), differs);
  EXPECT_THAT(inspect_error(work_ / "eval"), differs);
  EXPECT_THAT(text_of(verify(stage_ / "model")), Not(HasSubstr("was changed"))) << "of its own files only";
}

TEST_F(Inspection, AFileMissingFromAPartIsNamed) {
  fs::remove(stage_ / "model" / "config.json");
  write_file_atomic(stage_ / "added.txt", "x");
  EXPECT_THAT(text_of(verify(stage_)), HasSubstr("added.txt"));
  const auto missing = AllOf(HasSubstr("config.json"), HasSubstr("file is missing"));
  EXPECT_THAT(text_of(verify(stage_)), missing);
  EXPECT_THAT(text_of(verify(work_.path())), missing);
}

// A checkpoint of training has a DONE of its own, which says nothing of its files; the stage's does.
TEST_F(Inspection, CheckpointsBelongToTheirStage) {
  const fs::path checkpoint = stage_ / "checkpoints" / "step-000000002";
  make_directories(checkpoint / "model");
  write_file_atomic(checkpoint / "results.json", kResults);
  write_file_atomic(checkpoint / "DONE", "2");
  fs::remove(stage_ / "DONE");
  write_done(stage_, {.stage = "eval", .kind = "evaluate"});
  EXPECT_TRUE(is_recorded(checkpoint / "results.json"));
  EXPECT_THAT(verify(checkpoint / "results.json"), IsEmpty());
  write_file_atomic(checkpoint / "results.json", std::string(kResults) + " ");
  EXPECT_THAT(text_of(verify(checkpoint / "results.json")), HasSubstr("was changed after the stage had finished"));
}

TEST_F(Inspection, UnfinishedStagesAreCalledSo) {
  make_stage("eval", "eval-99999999", false);  // in use now, the finished one is old
  EXPECT_THAT(inspect_error(work_ / "eval"), HasSubstr("has not finished"));
  EXPECT_THAT(inspect_error(work_ / "eval-99999999"), HasSubstr("has not finished"));
  EXPECT_THAT(text_of(verify(work_.path())), AllOf(HasSubstr("eval-99999999"), HasSubstr("has not finished")));
  const std::string table = inspect(work_.path());
  EXPECT_LT(table.find("eval-99999999"), table.find("eval-0123abcd")) << "those in use first";
  EXPECT_THAT(table, AllOf(HasSubstr("yes"), HasSubstr("no")));

  fs::remove_all(stage_);
  EXPECT_THAT(inspect(work_.path()), HasSubstr("eval-99999999")) << "a work directory without a finished stage";
}

TEST_F(Inspection, AWorkDirectoryComparesWhatWasTrained) {
  write_file_atomic(stage_ / "validation.json", R"({"model": {"step": 3, "loss": 2.71, "accuracy": 0.451}})");
  EXPECT_THAT(inspect(work_.path()), AllOf(HasSubstr("2.7100"), HasSubstr("0.4510")));
  write_file_atomic(stage_ / "validation.json", R"({"model": null, "last": {"step": 3}})");
  EXPECT_THAT(inspect(work_.path()), HasSubstr("eval")) << "a log that has lost the line";
  write_file_atomic(stage_ / "validation.json", R"({"model": {"step": 3}})");
  EXPECT_THAT(inspect_error(work_.path()), AllOf(HasSubstr("validation.json"), HasSubstr("loss")));
}

TEST_F(Inspection, BrokenResultsAreAUserErrorThatNamesTheDefect) {
  const TemporaryDirectory other;
  make_directories(other / "photos-20261121");
  EXPECT_THAT(inspect_error(other.path()), HasSubstr("is not a file or directory that Draftsmith writes"));
  const fs::path file = work_ / "results.json";
  const auto defect_of = [&](const std::string& json) {
    write_file_atomic(file, json);
    EXPECT_EQ(inspect_error(file), text_of(verify(file))) << json;
    return inspect_error(file);
  };
  EXPECT_THAT(defect_of(R"({"tasks": [1]})"), HasSubstr("is no results.json of this version"));
  EXPECT_THAT(defect_of(R"({"version": 1, "suite": "s", "environment": {}, "tasks": [1]})"),
              HasSubstr("is no results.json: wrong value of tasks.0"));
  EXPECT_FALSE(is_recorded(file)) << "it lies in no stage";
}

class ModelInspection : public testing::Test {
 protected:
  ModelInspection() { model::save_model(root_ / "large", large_); }

  TemporaryDirectory root_;
  model::TransformerModel large_{model::tiny_bloom(4), 1}, small_{model::tiny_bloom(2), 2};
};

TEST_F(ModelInspection, TandemSecondariesAreShownAndVerifiedWithTheirPrimary) {
  const auto secondary = model::make_tandem_secondary(small_, large_);
  model::save_tandem(root_ / "tandem", *secondary, {.primary_directory = root_ / "large"});
  EXPECT_THAT(inspect(root_ / "tandem"),
              AllOf(HasSubstr("DraftsmithTandemBloomForCausalLM"), HasSubstr("reads layers 2, 4 of a primary of 4"),
                    HasSubstr("../large"), HasSubstr("2 tokens")));
  EXPECT_THAT(verify(root_ / "tandem"), IsEmpty());
  fs::remove_all(root_ / "large");
  EXPECT_THAT(to_string(verify(root_ / "tandem").at(0)), HasSubstr("not there"));
  model::save_model(root_ / "large", model::TransformerModel(model::tiny_bloom(4), 9));
  EXPECT_THAT(to_string(verify(root_ / "tandem").at(0)), HasSubstr("has changed"));
}

TEST_F(ModelInspection, AnotherProgramsFileOfTheNameDoneIsNoStage) {
  for (const char* content : {"", "{}", "all jobs ended"}) {
    write_file_atomic(root_ / "DONE", content);
    EXPECT_THAT(inspect(root_ / "large"), HasSubstr("bloom")) << content;
    EXPECT_FALSE(is_recorded(root_ / "large"));
  }
}

TEST_F(ModelInspection, TheTokenizersFileIsNamedWhateverItsName) {
  write_file_atomic(root_ / "large/source.spm", "pieces");
  EXPECT_THAT(inspect(root_ / "large"), HasSubstr("tokenizer      source.spm"));
}

TEST_F(ModelInspection, BlockModelsAreShownAndVerified) {
  const model::TransformerModel blocks(model::block_prediction_config(model::tiny_bloom(2), 8), 3);
  model::save_model(root_ / "blocks", blocks);
  EXPECT_THAT(inspect(root_ / "blocks"), HasSubstr("blocks of 8 tokens"));
  EXPECT_THAT(verify(root_ / "blocks"), IsEmpty());
  model::save_deep_tandem(root_ / "deep", model::DeepTandemModel({model::tiny_bloom(4), model::tiny_bloom(2), 3}, 1));
  EXPECT_THAT(inspect(root_ / "deep"),
              AllOf(HasSubstr("deep Tandem"), HasSubstr("large part"), HasSubstr("of 3 tokens")));
  EXPECT_THAT(verify(root_ / "deep"), IsEmpty());
  fs::remove(root_ / "deep" / "small" / "model.safetensors");
  EXPECT_THAT(verify(root_ / "deep").size(), 1);
}

}  // namespace
}  // namespace draftsmith::recipes
