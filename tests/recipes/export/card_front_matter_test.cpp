#include "recipes/export/card_front_matter.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith::recipes {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::string front_matter(const ExportOptions& options, bool encoder_decoder = false,
                         const evaluate::Results* measured = nullptr) {
  model::ModelDescription model;
  model.family = "llama";
  model.config.encoder_decoder = encoder_decoder;
  return card_front_matter(options, model, measured);
}

std::vector<Problem> problems_of(const ExportOptions& options) {
  Problems problems;
  validate_options(options, "export", problems);
  return problems.list();
}

evaluate::SettingResult measured_setting(const std::string& name, double alpha) {
  evaluate::SettingResult setting;
  setting.name = name;
  setting.quality.scores = {{.name = "bleu", .value = 27.5, .interval = {}}};
  setting.acceptance.alpha = alpha;
  setting.acceptance.tokens_per_target_run = 2.25;
  return setting;
}

TEST(CardFrontMatter, HoldsWhatTheUserKnowsAndNothingThatNobodyKnows) {
  const std::string text = front_matter({.out = "drafter",
                                         .license = "apache-2.0",
                                         .language = {"de", "no"},
                                         .base_model = "owner/base",
                                         .dataset = {"owner/texts"}});
  EXPECT_THAT(text, AllOf(HasSubstr("license: \"apache-2.0\"\n"), HasSubstr("language:\n- \"de\"\n- \"no\"\n"),
                          HasSubstr("base_model: \"owner/base\"\n"), HasSubstr("datasets:\n- \"owner/texts\"\n")));
  for (const char* key : {"license:", "language:", "base_model:", "datasets:", "model-index:"}) {
    EXPECT_THAT(front_matter({.out = "drafter"}), Not(HasSubstr(key)));
  }
}

TEST(CardFrontMatter, NamesAPipelineOfDecodersAlone) {
  EXPECT_THAT(front_matter({.out = "drafter"}), HasSubstr("pipeline_tag: text-generation\n"));
  EXPECT_THAT(front_matter({.out = "drafter"}, true), Not(HasSubstr("pipeline_tag")));
}

TEST(CardFrontMatter, HoldsFiniteMeasurementsAndNoRepetitions) {
  evaluate::Results measured;
  evaluate::TaskResult task;
  task.name = "news: \"today\"";
  task.settings = {measured_setting("assisted", NAN), measured_setting("bild", 0.625), measured_setting("again", 0.5)};
  task.settings.back().repeats = "assisted";
  evaluate::TaskResult validation = task;
  validation.name = "valid";
  validation.chooses = true;
  measured.tasks = {validation, task};
  const std::string text = front_matter({.out = "drafter/"}, false, &measured);
  EXPECT_THAT(text, AllOf(HasSubstr("model-index:\n- name: \"drafter\"\n"),
                          HasSubstr("name: \"news: \\\"today\\\"\"\n"), HasSubstr("type: \"news---today-\"\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("name: \"bleu of assisted\"\n      value: 27.5\n"),
                          HasSubstr("name: \"alpha of bild\"\n      value: 0.625\n")));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("alpha of assisted")), Not(HasSubstr("nan")), Not(HasSubstr("again")),
                          Not(HasSubstr("valid"))));
}

TEST(CardFrontMatter, ValuesThatTheHubRefusesAreRefused) {
  EXPECT_THAT(problems_of({.license = "mit", .language = {"de", "multilingual"}, .base_model = "base"}), SizeIs(0));
  for (const char* license : {"", "MIT", "mit\nbase_model: x"})
    EXPECT_THAT(problems_of({.license = license}), SizeIs(1));
  for (const char* language : {"german", "DE", "d"}) EXPECT_THAT(problems_of({.language = {language}}), SizeIs(1));
  for (const char* name : {"a/b/c", "/work/model", "a b", "a/b.git", "a--b", ""}) {
    EXPECT_THAT(problems_of({.base_model = name}), SizeIs(1)) << name;
    EXPECT_THAT(problems_of({.dataset = {"owner/texts", name}}), SizeIs(1)) << name;
  }
}

TEST(CardFrontMatter, FormatsWithoutACardRefuseItsFacts) {
  EXPECT_THAT(problems_of({.format = "gguf"}), SizeIs(0));
  EXPECT_THAT(problems_of({.format = "gguf", .license = "mit"}), SizeIs(1));
}

}  // namespace
}  // namespace draftsmith::recipes
