// Recipes as files: stages, defaults, includes and overrides; every mistake is named with its line.
#include "recipes/recipe.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace draftsmith::recipes {
namespace {

class RecipeFile : public testing::Test {
 protected:
  Recipe load(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    write_file_atomic(folder_ / "recipe.toml", text);
    return load_recipe(folder_ / "recipe.toml", overrides);
  }

  std::string load_error(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    return error_of([&] { load(text, overrides); });
  }

  TemporaryDirectory folder_;
};

constexpr const char* kTwoStages = R"(
name = "two"
[words]
kind = "language"
train = 100
[pieces]
kind = "tokenizer"
input = ["@words/train.src"]
)";

TEST_F(RecipeFile, ListsStagesInTheOrderOfTheFileWithTheirInputs) {
  const Recipe recipe = load(kTwoStages);
  ASSERT_EQ(recipe.stages.size(), 2u);
  EXPECT_EQ(recipe.name, "two");
  EXPECT_EQ(recipe.stages[0].name, "words");
  EXPECT_THAT(recipe.stages[1].inputs, ElementsAre("words"));
  EXPECT_EQ(recipe.stages[0].checked.options["train"], 100);
  const auto table = resolve_references(recipe.stages[1], "/work/x");
  EXPECT_EQ(table["input"][0].value<std::string>(), "/work/x/words/train.src");
}

TEST_F(RecipeFile, WhatAStageCouldNotReadIsSaidBeforeAnythingRuns) {
  EXPECT_TRUE(is_recipe(toml::parse("include = { recipe = \"inner.toml\" }\n"))) << "and no suite";
  const std::string text = write_text(folder_ / "a.txt", "a\n").string();
  const auto stage = [&](const std::string& name, const std::string& input) {
    return "[" + name + "]\nkind = \"corpus\"\ntokenizer = \"" + text + "\"\n" + input;
  };
  const std::string found = load_error("name = 5\n" + stage("half", "source = \"" + text + "\"\n") + stage("none", "") +
                                       stage("windows", "text = \"" + text + "\"\ntoo_long = \"split\"\n"));
  EXPECT_THAT(found, AllOf(HasSubstr("a text as name"), HasSubstr("half: half of a pair"), HasSubstr("none: no input"),
                           HasSubstr("windows.max_target: texts are split")));
}

TEST_F(RecipeFile, IncludedStagesComeFirstAsTheirOwnRecipeMakesThem) {
  const std::string inner = R"(
[defaults.language]
valid = 7
[words]
kind = "language"
train = 100
[unwanted]
kind = "language"
[more]
kind = "language"
)";
  const std::string outer = R"(
include = { recipe = "inner.toml", until = "words" }
[defaults.language]
valid = 9
[pieces]
kind = "tokenizer"
input = ["@words/train.src"]
[more]
kind = "language"
)";
  write_file_atomic(folder_ / "inner.toml", inner);
  const Recipe recipe = load(outer, {"words.test=5", "more.test=6", "defaults.language.seed=3"});
  std::vector<std::string> names;
  for (const RecipeStage& stage : recipe.stages) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("words", "pieces", "more"));
  const auto& words = recipe.stages[0].checked.options;
  EXPECT_EQ(words["valid"], 7);
  EXPECT_EQ(words["test"], 5);
  EXPECT_EQ(words["seed"], 3);
  write_file_atomic(folder_ / "inner.toml", replace_all(inner, "[defaults.language]\nvalid = 7\n", ""));
  EXPECT_EQ(load(outer, {"defaults.language.seed=4"}).stages[0].checked.options["seed"], 4) << "no defaults there";
  const auto& more = recipe.stages[2].checked.options;
  EXPECT_EQ(more["valid"], 9);
  EXPECT_EQ(more["test"], 6);
  EXPECT_EQ(more["seed"], 3);
}

TEST_F(RecipeFile, TwoIncludedRecipesMayShareStages) {
  write_file_atomic(folder_ / "inner.toml", std::string("[words]\nkind = \"language\"\n[more]\nkind = \"language\"\n"));
  const auto including_words = [](const std::string& own) {
    return "include = { recipe = \"inner.toml\", until = \"words\" }\n[" + own + "]\nkind = \"language\"\n";
  };
  write_file_atomic(folder_ / "left.toml", including_words("left"));
  write_file_atomic(folder_ / "right.toml", including_words("right"));
  const Recipe recipe = load(
      "include = [{ recipe = \"left.toml\" }, { recipe = \"right.toml\" }, { recipe = \"./inner.toml\" }]\n"
      "[last]\nkind = \"language\"\n",
      {"words.test=5"});
  std::vector<std::string> names;
  for (const RecipeStage& stage : recipe.stages) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("words", "more", "left", "right", "last"));
  EXPECT_EQ(recipe.stages[0].checked.options["test"], 5);
}

TEST_F(RecipeFile, StagesThatNoneReadsAreLeftOutOfNeededIncludes) {
  write_file_atomic(folder_ / "inner.toml", std::string("[words]\nkind = \"language\"\n[spare]\nkind = \"language\"\n"
                                                        "[pieces]\nkind = \"tokenizer\"\n"
                                                        "input = [\"@words/train.src\"]\n"));
  const auto names_of = [&](const std::string& flags) {
    const std::string prepared =
        "[prepared]\nkind = \"corpus\"\ntokenizer = \"@pieces/spiece.model\"\n"
        "source = \"@words/train.src\"\ntarget = \"@words/train.tgt\"\n";
    std::vector<std::string> names;
    for (const RecipeStage& stage : load("include = [" + flags + "]\n" + prepared).stages) names.push_back(stage.name);
    return names;
  };
  const std::string all = "{ recipe = \"inner.toml\" }", needed = "{ recipe = \"inner.toml\", needed = true }";
  EXPECT_THAT(names_of(needed), ElementsAre("words", "pieces", "prepared"));
  EXPECT_THAT(names_of(all), ElementsAre("words", "spare", "pieces", "prepared"));
  EXPECT_THAT(names_of(needed + ", " + all), ElementsAre("words", "spare", "pieces", "prepared"));
}

TEST_F(RecipeFile, IncludeErrorsNameTheFileAndTheStage) {
  for (const char* wrong : {"\"inner.toml\"", "[\"inner.toml\"]", "3"}) {
    EXPECT_THAT(load_error("include = " + std::string(wrong) + "\n[words]\nkind = \"language\"\n"),
                HasSubstr("`include` names recipes by tables"));
  }
  EXPECT_THAT(load_error("include = { recipe = \"none.toml\" }\n[words]\nkind = \"language\"\n"),
              HasSubstr("none.toml"));
  write_file_atomic(folder_ / "inner.toml", std::string("[words]\nkind = \"language\"\n"));
  const std::string include = "include = { recipe = \"inner.toml\", until = \"";
  EXPECT_THAT(load_error(include + "pieces\" }\n"), HasSubstr("no such stage"));
  EXPECT_THAT(load_error(include + "words\" }\n[words]\nkind = \"language\"\n"), HasSubstr("of this name"));
  write_file_atomic(folder_ / "inner.toml", std::string("include = { recipe = \"recipe.toml\" }\n"));
  EXPECT_THAT(load_error("include = { recipe = \"inner.toml\" }\n"), HasSubstr("include one another"));
  EXPECT_THAT(load_error(kTwoStages, {"include.until=x"}), HasSubstr("is read before --set"));
  EXPECT_THAT(load_error(kTwoStages, {"included.x=1"}), HasSubstr("no table"));
}

TEST_F(RecipeFile, EveryErrorIsReportedAtOnceWithItsLine) {
  const std::string error = load_error(R"(
[words]
kind = "langage"
[pieces]
kind = "tokenizer"
input = ["@wrods/train.src", "$DATA/no/such/file"]
vocabulry = 100
)");
  EXPECT_THAT(error, testing::AllOf(HasSubstr("recipe.toml:2"), HasSubstr("did you mean language?"),
                                    HasSubstr("@wrods/train.src"), HasSubstr("no/such/file"), HasSubstr("vocabulry")));
  const std::string unknown(300, 'n');  // no system has a name as long
  EXPECT_THAT(load_error("[a]\nkind = \"tokenizer\"\ninput = [\"" + unknown + "\"]\nvocabulry = 1\n"),
              testing::AllOf(HasSubstr(unknown), HasSubstr("vocabulry")));
}

TEST_F(RecipeFile, MistakesInsideStagesAndDefaultsAreNamedWithTheirLine) {
  EXPECT_THAT(load_error("[defaults.language]\ntrian = 1\n[a]\nkind = \"language\"\ntset = 2\n"),
              testing::AllOf(HasSubstr("recipe.toml:2"), HasSubstr("recipe.toml:5")));
  EXPECT_THAT(load_error("[defaults.langage]\ntrain = 1\n[a]\nkind = \"language\"\n"), HasSubstr("did you mean"));
}

TEST_F(RecipeFile, StagesHaveKindsAndReadEarlierOnes) {
  EXPECT_THAT(load_error("[a]\nkind = \"tokenizer\"\ninput = [\"@b/x\"]\n[b]\nkind = \"language\"\n"),
              HasSubstr("does not come before"));
  EXPECT_THAT(load_error("[a]\nx = 1\n"), HasSubstr("teacher-outputs"));
  EXPECT_THAT(load_error("name = \"x\"\n"), HasSubstr("no stage"));
}

TEST_F(RecipeFile, WhatIsReadWithATokenizerCountsAsItsStagesInput) {
  for (const auto& [file, beside] :
       {std::pair("tokenizer.json", "chat_template.jinja"), std::pair("source.spm", "target.spm")}) {
    for (const char* name : {file, beside}) write_file_atomic(folder_ / name, std::string("{}"));
    const std::string keys = "source = \".\"\ntarget = \".\"\ntokenizer = \"" + (folder_ / file).string() + "\"\n";
    EXPECT_THAT(load("[a]\nkind = \"corpus\"\n" + keys).stages[0].files, testing::Contains(testing::EndsWith(beside)));
  }
}

TEST_F(RecipeFile, NamesAreThoseOfFolders) {
  for (const char* name : {"", ".", "..", "../a", "a/b", "a\\u0000"}) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    EXPECT_THAT(load_error("[" + quoted + "]\nkind = \"language\"\n"), HasSubstr("names a folder, and cannot")) << name;
  }
}

TEST_F(RecipeFile, AModelStartsFromOneThingOnly) {
  const std::string stage = "[t]\nkind = \"train\"\ncorpus = \".\"\ntokenizer = \".\"\n";
  EXPECT_THAT(load_error(stage), HasSubstr("one of `from` and `architecture`"));
  EXPECT_EQ(load_error(stage + "from = \".\"\n"), "no error");
}

constexpr const char* kEvaluation = R"(
[e]
kind = "evaluate"
model = "."
drafter = [{ name = "small", model = "." }]
task = { name = "test", source = ".", references = ["."] }
[[e.run]]
method = "bild"
)";

TEST_F(RecipeFile, MistakesInTheRunsOfAnEvaluationAreFoundBeforeAnythingIsTrained) {
  const std::string suite = kEvaluation;
  EXPECT_EQ(load_error(suite + "drafter = [\"small\"]\n"), "no error");
  EXPECT_THAT(load_error(suite), HasSubstr("a drafter, for method bild"));
  EXPECT_THAT(load_error(suite + "drafter = [\"small\"]\nwindow_rule = \"fixd\"\n"),
              HasSubstr("did you mean 'fixed'?"));
}

TEST_F(RecipeFile, TheDeviceOfAnEvaluationIsTheRecipesUnlessTheCommandLineNamesOne) {
  const Recipe recipe = load(std::string(kEvaluation) + "drafter = [\"small\"]\n", {"e.device=\"tpu\""});
  const auto error_on = [&](const std::string& device) {
    return error_of([&] {
      recipe.stages[0].kind->run(recipe.stages[0].table, {folder_ / "e", "", {{.device = device}}});
    });
  };
  EXPECT_THAT(error_on("auto"), HasSubstr("tpu"));
  EXPECT_THAT(error_on("npu"), HasSubstr("npu"));
}

}  // namespace
}  // namespace draftsmith::recipes
