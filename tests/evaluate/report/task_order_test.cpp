// Pages begin with the task that is reported; tasks on which settings were chosen come last, and say so.
#include "evaluate/report/task_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/report/results_of_settings.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TaskResult named_task(const std::string& name, bool chooses, std::vector<SettingResult> settings) {
  TaskResult task = made_task(std::move(settings));
  task.name = name;
  task.chooses = chooses;
  return task;
}

SettingResult chosen_on(const std::string& task, const std::string& name) {
  SettingResult setting = made_setting(name, "bild", 2, 29.5, "small");
  setting.chosen = ChosenSetting{.on = task, .max_drop = 1, .setting = "bild.small.FB0.5", .drop_there = 0.5};
  return setting;
}

// Results as evaluations write them: choosing tasks come first.
Results validated_results() {
  Results results;
  results.suite = "s";
  results.tasks = {
      named_task("val a", true, {made_setting("bild.small.FB0.5", "bild", 2, 29.5, "small")}),
      named_task("val b", true, {made_setting("other.small.FB0.5", "bild", 2, 29.5, "small")}),
      named_task("test a", false, {chosen_on("val a", "bild.small.drop1"), chosen_on("val b", "other.small.drop1")}),
      named_task("test b", false, {chosen_on("val a", "bild.small.drop1"), chosen_on("val a", "bild.small.drop2")})};
  return results;
}

TEST(TaskOrder, ReportedTasksComeFirstAndEitherGroupKeepsItsOrder) {
  std::vector<std::string> names;
  const Results results = validated_results();
  for (const TaskResult* task : page_order(results)) names.push_back(task->name);
  EXPECT_THAT(names, ElementsAre("test a", "test b", "val a", "val b"));
}

TEST(TaskOrder, ChoosingTasksNameTheRowsThatTheyChose) {
  const Results results = validated_results();
  EXPECT_EQ(task_heading(results.tasks[2]), "test a");
  EXPECT_EQ(task_purpose(results, results.tasks[2]), "");
  EXPECT_EQ(task_heading(results.tasks[0]), "val a, where settings were chosen");
  EXPECT_THAT(task_purpose(results, results.tasks[0]), HasSubstr("report as bild.small.drop1, bild.small.drop2."));
  EXPECT_THAT(task_purpose(results, results.tasks[1]), HasSubstr("report as other.small.drop1."));
}

TEST(TaskOrder, AChoosingTaskAloneSaysOnlyThatItChooses) {
  Results results;
  results.tasks = {named_task("val", true, {})};
  EXPECT_EQ(task_purpose(results, results.tasks[0]), "Settings are chosen by their numbers on this task.");
}

TEST(TaskOrder, MarkdownPagesFollowIt) {
  const std::string page = report_markdown(validated_results());
  const size_t test = page.find("\n## test a\n");
  const size_t val = page.find("\n## val a, where settings were chosen\n\nThe numbers below chose");
  ASSERT_NE(test, std::string::npos) << page;
  ASSERT_NE(val, std::string::npos) << page;
  EXPECT_LT(test, page.find("\n## test b\n"));
  EXPECT_LT(page.find("\n## test b\n"), val);
  EXPECT_LT(val, page.find("\n## val b, where settings were chosen\n"));
  EXPECT_LE(widest_line(page), 120u);
}

TEST(TaskOrder, HtmlPagesFollowIt) {
  const std::string page = report_html(validated_results());
  EXPECT_THAT(page, HasSubstr("<h2 id=\"task1\">test a</h2>"));
  EXPECT_THAT(page, HasSubstr("<h2 id=\"task3\">val a, where settings were chosen</h2>\n<p class=\"purpose\">The"));
  EXPECT_LT(page.find("id=\"task2\""), page.find("id=\"task3\""));
}

TEST(TaskOrder, TheConsoleEndsWithTheReportedTasks) {
  const std::string table = results_table(validated_results());
  EXPECT_LT(table.find("val b"), table.find("test a"));
}

}  // namespace
}  // namespace draftsmith::evaluate
