// What models are given to predict: references, or what prompts go on with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluate/suite/tasks.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

TEST(ForcedTexts, WithoutReferencesDraftersAreMeasuredOnWhatPromptsGoOnWith) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  suite.options.forced_lines = 5;  // of 6, 7, 8, 9 and 10 words
  TaskOptions& task = suite.options.task[0];
  task.references.clear();
  task.metric.name = "none";
  FakeEngine engine;
  EXPECT_FALSE(to_json(suite.evaluate(engine).results).at("tasks").at(0).contains("prediction"));
  task.max_source_tokens = 8;
  const auto result = suite.evaluate(engine);
  const auto prediction = to_json(result.results).at("tasks").at(0).at("prediction");
  EXPECT_EQ(prediction.at("texts"), "continuations");
  EXPECT_EQ(prediction.at("lines"), 2);
  EXPECT_EQ(prediction.at("models").at("small").at("accuracy"), 0.5);
  EXPECT_THAT(result.table, HasSubstr("next tokens of 2 continuations"));
}

TEST(ForcedTexts, ArePairedWithTheirPromptsAndNoLongerThanOutputs) {
  FakeEngine engine;
  TaskOptions task;
  task.max_source_tokens = 3;
  const TaskData data{{"2", "9", "5"}, {}};
  const std::vector<Prompt> prompts{{1, 1}, {7, 7, 7}, {8, 8, 8}};
  const ForcedTexts texts = forced_texts(task, data, prompts, 4, engine);
  EXPECT_EQ(texts.prompts, (std::vector<Prompt>{{7, 7, 7}, {8, 8, 8}}));
  EXPECT_EQ(texts.outputs, (std::vector<std::vector<int64_t>>{{1, 1, 1, 1}, {1, 1}}));
}

// An engine that knows no word but "w".
class Particular : public FakeEngine {
 public:
  std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions& task) const override {
    if (reference == "w") return FakeEngine::encode_reference(reference, task);
    throw UserError({.where = "", .what = "a word is no id", .expected = "w", .found = reference, .hint = ""});
  }
};

TEST(ForcedTexts, AReferenceThatCannotBeReadIsToldWithItsFileAndLine) {
  TaskOptions task;
  task.name = "test";
  task.source = "test.src";
  task.references = {"test.tgt"};
  task.skip = 10;
  const TaskData data{{"4", "4"}, {{"w"}, {"other"}}};
  const std::vector<Prompt> prompts{{1}, {1}};
  testing::internal::CaptureStdout();
  const ForcedTexts texts = forced_texts(task, data, prompts, 4, Particular());
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(texts.outputs.empty());
  EXPECT_THAT(log, HasSubstr("test.tgt:12"));
  EXPECT_THAT(log, HasSubstr("a word is no id"));
}

}  // namespace
}  // namespace draftsmith::evaluate
