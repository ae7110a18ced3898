// Lines of tasks: which are taken, by what they are scored, and what models are given to predict.
#include "evaluate/suite/tasks.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

TEST(ForcedTexts, WithoutReferencesDraftersAreMeasuredOnWhatPromptsGoOnWith) {
  FakeSuite suite({"assisted"});
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
  TaskOptions task{.max_source_tokens = 3};
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
  TaskOptions task{.name = "test", .source = "test.src", .references = {"test.tgt"}, .skip = 10};
  const TaskData data{{"4", "4"}, {{"w"}, {"other"}}};
  const std::vector<Prompt> prompts{{1}, {1}};
  const CapturedLog log;
  const ForcedTexts texts = forced_texts(task, data, prompts, 4, Particular());
  EXPECT_TRUE(texts.outputs.empty());
  EXPECT_THAT(log.text(), HasSubstr("test.tgt:12"));
  EXPECT_THAT(log.text(), HasSubstr("a word is no id"));
}

TEST(TaskMetric, ReferencesInChineseAndJapaneseAreSplitIntoCharacters) {
  const auto tokenizer = [](
                             const std::string& references, const std::string& direction = "",
                             const std::function<void(TaskOptions&)>& change = [](TaskOptions&) {}) {
    TaskOptions task{.name = "test", .direction = direction, .source = "test.en", .references = {references}};
    change(task);
    return task_metric(task)->signature({{"a"}});
  };
  EXPECT_THAT(tokenizer("test.ja"), HasSubstr("tok:char"));
  EXPECT_THAT(tokenizer("test.zh"), HasSubstr("tok:zh"));
  EXPECT_THAT(tokenizer("wmt20.en-zh.ref-A"), HasSubstr("tok:zh"));
  EXPECT_THAT(tokenizer("references.txt", "en-zh"), HasSubstr("tok:zh"));
  EXPECT_THAT(tokenizer("test.de"), HasSubstr("tok:13a"));
  EXPECT_THAT(tokenizer("test.zh", "zh-de"), HasSubstr("tok:13a"));
  EXPECT_THAT(tokenizer("test.zh", "", [](auto& task) { task.metric.tokenize = "char"; }), HasSubstr("tok:char"));
  EXPECT_THAT(tokenizer("test.zh", "", [](auto& task) { task.ids = true; }), HasSubstr("tok:13a"));
}

TEST(PromptTasks, LinesMayBeSkippedAndDocumentsSeparated) {
  const FakeSuite suite;
  TaskOptions task = suite.options.task[0];
  task.references.clear();
  task.metric.name = "none";
  task.skip = 2;
  task.limit = 3;
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("8", "9", "10"));
  write_file_atomic(suite.directory / "source", "one\ntwo\n---\nthree\n");
  task.skip = task.limit = 0;
  task.separator = "---";
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("one\ntwo", "three"));
  write_file_atomic(suite.directory / "prompts.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n");
  task.source.clear();
  task.separator.clear();
  task.jsonl = suite.directory / "prompts.jsonl";
  task.source_field = "text";
  EXPECT_THAT(load_task(task).sources, testing::ElementsAre("a b", "c"));
}

TEST(PromptTasks, MetricAndReferencesGoTogether) {
  const auto problem = [](const std::function<void(TaskOptions&)>& change) {
    FakeSuite suite;
    FakeEngine engine;
    TaskOptions& task = suite.options.task[0];
    task.references.clear();
    task.metric.name = "none";
    change(task);
    return error_of([&] { suite.evaluate(engine); });
  };
  EXPECT_THAT(problem([](auto& task) { task.metric.name = "bleu"; }), HasSubstr("metric = { name = \"none\" }"));
  EXPECT_THAT(problem([](auto& task) { task.references = {"x"}; }), HasSubstr("scores nothing"));
  EXPECT_THAT(problem([](auto& task) {
                task.ids = true;
                task.suffix = "x";
              }),
              HasSubstr("ids are taken as they are"));
  EXPECT_THAT(problem([](auto& task) { task.skip = 99; }), HasSubstr("no line after `skip`"));
  EXPECT_EQ(problem([](auto&) {}), "no error");
}

}  // namespace
}  // namespace draftsmith::evaluate
