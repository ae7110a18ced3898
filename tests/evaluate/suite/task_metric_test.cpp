// Which tokenizer of BLEU a task takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;

TaskOptions task_of(const std::string& references, const std::string& direction = "") {
  TaskOptions task;
  task.name = "test";
  task.source = "test.en";
  task.references = {references};
  task.direction = direction;
  return task;
}

TEST(TaskMetric, ChineseAndJapaneseReferencesAreSplitIntoCharacters) {
  EXPECT_THAT(task_metric(task_of("test.ja"))->signature({{"a"}}), HasSubstr("tok:char"));
  EXPECT_THAT(task_metric(task_of("test.zh"))->signature({{"a"}}), HasSubstr("tok:zh"));
  EXPECT_THAT(task_metric(task_of("wmt20.en-zh.ref-A"))->signature({{"a"}}), HasSubstr("tok:zh"));
  EXPECT_THAT(task_metric(task_of("references.txt", "en-zh"))->signature({{"a"}}), HasSubstr("tok:zh"));
  EXPECT_THAT(task_metric(task_of("test.de"))->signature({{"a"}}), HasSubstr("tok:13a"));
  EXPECT_THAT(task_metric(task_of("test.zh", "zh-de"))->signature({{"a"}}), HasSubstr("tok:13a"));
}

TEST(TaskMetric, ATokenizerThatIsGivenWins) {
  TaskOptions task = task_of("test.zh");
  task.metric.tokenize = "char";
  EXPECT_THAT(task_metric(task)->signature({{"a"}}), HasSubstr("tok:char"));
}

TEST(TaskMetric, IdsAreWords) {
  TaskOptions task = task_of("test.zh");
  task.ids = true;
  EXPECT_THAT(task_metric(task)->signature({{"a"}}), HasSubstr("tok:13a"));
}

}  // namespace
}  // namespace draftsmith::evaluate
