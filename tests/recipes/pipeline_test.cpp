// Recipes run stage by stage: what is skipped, redone, continued and stopped.
#include "recipes/pipeline.h"

#include <chrono>
#include <csignal>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/signals.h"
#include "tests/support/errors.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// A stage kind whose work is a file that counts its runs in `log`.
StageKind counting_kind(std::vector<std::string>& log) {
  return {.name = "count",
          .version = 1,
          .describe_options = [] { return std::string(); },
          .check = [](const toml::table&, const std::string&, Problems&) { return CheckedOptions(); },
          .run =
              [&log](const toml::table& table, const StageContext& run) {
                log.push_back(run.directory.filename().string().substr(0, 1));
                write_file_atomic(run.directory / "result.txt", table["value"].value_or(std::string()));
              }};
}

class Pipeline : public testing::Test {
 protected:
  // Two stages, b reading a's result.
  Recipe recipe(int value_of_a, int value_of_b) const {
    RecipeStage a{.name = "a", .kind = &kind_, .table = {}};
    a.checked.options = a.checked.identity = {{"value", value_of_a}};
    RecipeStage b{.name = "b", .kind = &kind_, .table = {}};
    b.table.insert("value", "@a/result.txt");
    b.checked.options = b.checked.identity = {{"value", value_of_b}};
    b.checked.paths = {"@a/result.txt"};
    b.inputs = {"a"};
    return {.name = "test", .stages = {a, b}};
  }

  std::vector<StageResult> run(const Recipe& recipe, const std::string& until = "", bool fresh = false) {
    log_.clear();
    return run_recipe(recipe, {.work = work_.path(), .until = until, .fresh = fresh, .execution = {}});
  }

  TemporaryDirectory work_;
  std::vector<std::string> log_;
  StageKind kind_ = counting_kind(log_);
};

TEST_F(Pipeline, RunsStagesInOrderAndLinksThem) {
  const auto results = run(recipe(1, 1));
  EXPECT_THAT(log_, ElementsAre("a", "b"));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(fs::is_symlink(work_ / "a"));
  EXPECT_EQ(fs::canonical(work_ / "a"), fs::canonical(results[0].directory));
  EXPECT_TRUE(read_done(results[1].directory).has_value());
  EXPECT_EQ(read_file(work_ / "b" / "result.txt"), (work_ / "a" / "result.txt").string());
}

TEST_F(Pipeline, SkipsWhatIsFinished) {
  run(recipe(1, 1));
  const auto results = run(recipe(1, 1));
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_TRUE(results[0].skipped);
}

TEST_F(Pipeline, RedoesAChangedStageAndWhatDependsOnItBesideTheOld) {
  const fs::path before = run(recipe(1, 1))[0].directory, after = run(recipe(2, 1))[0].directory;
  EXPECT_THAT(log_, ElementsAre("a", "b"));
  EXPECT_NE(before, after);
  EXPECT_TRUE(fs::exists(before / "result.txt"));
  run(recipe(2, 2));
  EXPECT_THAT(log_, ElementsAre("b"));
  EXPECT_EQ(run(recipe(1, 1))[0].directory, before) << "comes back to an earlier result";
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(Pipeline, GoesOnInTheDirectoryOfAnInterruptedStage) {
  const fs::path directory = run(recipe(1, 1))[1].directory;
  write_file_atomic(directory / "kept.txt", "kept");
  fs::remove(directory / "DONE");
  run(recipe(1, 1));
  EXPECT_THAT(log_, ElementsAre("b"));
  EXPECT_TRUE(fs::exists(directory / "kept.txt"));
}

TEST_F(Pipeline, UntilIncludesItsStageAndNamesThem) {
  run(recipe(1, 1), "a");
  EXPECT_THAT(log_, ElementsAre("a"));
  EXPECT_THAT(error_of([&] { run(recipe(1, 1), "c"); }), testing::HasSubstr("a, b"));
}

TEST_F(Pipeline, FreshKeepsTheOldUnderAnotherName) {
  const fs::path directory = run(recipe(1, 1))[0].directory;
  write_file_atomic(directory / "mine.txt", "x");
  run(recipe(1, 1), "", true);
  EXPECT_THAT(log_, ElementsAre("a", "b"));
  EXPECT_TRUE(fs::exists(fs::path(directory.string() + ".old1") / "mine.txt"));
  run(recipe(1, 1), "a", true);
  run(recipe(1, 1));
  EXPECT_THAT(log_, ElementsAre("b")) << "which the run with --fresh had not come to";
}

TEST_F(Pipeline, ASecondRunInTheSameWorkDirectoryIsRefused) {
  StageKind nested = kind_;
  nested.run = [&](const toml::table&, const StageContext&) { run(recipe(1, 1)); };
  Recipe outer = recipe(1, 1);
  outer.stages[0].kind = &nested;
  EXPECT_THROW(run(outer), UserError);
}

TEST_F(Pipeline, AFailedStageLeavesNoDoneAndKeepsEarlierStages) {
  StageKind failing = kind_;
  failing.run = [](const toml::table&, const StageContext& context) {
    write_file_atomic(context.directory / ".model.tmp-1-2-3", "of a killed run");
    throw RunError({.where = "here", .what = "failed"});
  };
  Recipe broken = recipe(1, 1);
  broken.stages[1].kind = &failing;
  EXPECT_THROW(run(broken), RunError);
  EXPECT_TRUE(fs::exists(work_ / "a" / "DONE"));
  EXPECT_FALSE(fs::exists(work_ / "b" / "DONE"));
  run(recipe(1, 1));
  EXPECT_FALSE(fs::exists(work_ / "b" / ".model.tmp-1-2-3"));
}

TEST_F(Pipeline, AskedToStopItBeginsNoFurtherStage) {
  const SignalWatch watch;
  StageKind stopping = kind_;
  stopping.run = [&](const toml::table& table, const StageContext& stage_run) {
    kind_.run(table, stage_run);
    raise(SIGTERM);
  };
  Recipe recipe_of_two = recipe(1, 1);
  recipe_of_two.stages[0].kind = &stopping;
  EXPECT_THROW(run(recipe_of_two), Interrupted);
  EXPECT_THAT(log_, ElementsAre("a"));
  EXPECT_TRUE(fs::exists(work_ / "a" / "DONE"));
  EXPECT_FALSE(fs::exists(work_ / "b"));
}

TEST_F(Pipeline, AStagesHashDependsOnKindOptionsAndInputs) {
  StageKind newer = kind_;
  newer.version = 2;
  Recipe other_kind = recipe(1, 1);
  other_kind.stages[0].kind = &newer;
  const std::map<std::string, std::string> inputs = {{"file", "0a"}};
  const std::string hash = stage_hash(recipe(1, 1).stages[0], inputs);
  EXPECT_EQ(stage_hash(recipe(1, 2).stages[0], {{"another name", "0a"}}), hash);
  EXPECT_NE(stage_hash(recipe(2, 1).stages[0], inputs), hash);
  EXPECT_NE(stage_hash(recipe(1, 1).stages[0], {{"file", "0b"}}), hash);
  EXPECT_NE(stage_hash(other_kind.stages[0], inputs), hash);
}

TEST_F(Pipeline, AnInputOfOtherContentsRunsItsStageAgainWhateverItsTime) {
  const TemporaryDirectory inputs;
  const fs::path file = inputs / "data.txt";
  Recipe with_file = recipe(1, 1);
  with_file.stages[0].files = {file.string()};
  write_file_atomic(file, "one");
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file, long_ago);
  run(with_file);
  EXPECT_TRUE(run(with_file)[0].skipped);
  write_file_atomic(file, "two");
  fs::last_write_time(file, long_ago);
  EXPECT_FALSE(run(with_file)[0].skipped);
}

TEST_F(Pipeline, WhereTheDataFolderIsChangesNoStage) {
  const TemporaryDirectory inputs(fs::current_path());  // its whole name stands before "@a", the relative one behind it
  write_file_atomic(inputs / "data.txt", "one");
  Recipe with_data = recipe(1, 1);
  with_data.stages[1].files = {"$DATA/data.txt"};
  for (const fs::path& folder : {inputs.path(), inputs.path().lexically_relative(fs::current_path())}) {
    const ScopedVariable data("DRAFTSMITH_DATA", folder.string());
    run(with_data);
  }
  EXPECT_THAT(log_, testing::IsEmpty());
}

TEST_F(Pipeline, OfAFolderOtherProgramsFilesAndWorkDirectoriesAreNoInput) {
  Recipe with_folder = recipe(1, 1);
  const TemporaryDirectory inputs;
  with_folder.stages[0].files = {inputs.path().string()};
  const auto runs = [&] { return run_recipe(with_folder, {.work = inputs / "work", .execution = {}}); };
  write_file_atomic(inputs / "data.txt", "one");
  runs();
  fs::create_directory(inputs / ".git");
  write_file_atomic(inputs / ".git" / "index", "new");
  EXPECT_TRUE(runs()[0].skipped);
  write_file_atomic(inputs / "more.txt", "two");
  EXPECT_FALSE(runs()[0].skipped);
}

TEST_F(Pipeline, DamagedDoneIsAnErrorThatSaysWhatToDo) {
  const fs::path directory = run(recipe(1, 1))[0].directory;
  write_file_atomic(directory / "DONE", "{}");
  EXPECT_THROW(run(recipe(1, 1)), UserError);
}

}  // namespace
}  // namespace draftsmith::recipes
