// Pages of results: the sentence that says what a suite found, the order of tasks, and a text that is safe and whole.
// tests/tools/report_page_test.py opens a page in a browser.
#include <string>

#include <gmock/gmock.h>

#include "base/utf8.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "tests/evaluate/made_results.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::EndsWith;

TEST(Headline, NamesTheFastestLosslessSettingAndTheFastestNearIt) {
  const TaskResult task = made_task({made_lossless("speculative.small.T0.G4", "speculative", 2.41),
                                     made_lossless("assisted.small", "assisted", 2.2),
                                     made_setting("bild.small.FB0.5", "bild", 2.93, 29.2, "small"),
                                     made_setting("bild.small.FB0.3", "bild", 4, 27, "small")});
  EXPECT_EQ(
      headline(task),
      "Lossless methods are up to 2.41 ±0.05 × as fast at the same BLEU (speculative.small.T0.G4); the best within "
      "one point of BLEU is 2.93 ±0.05 × as fast (bild.small.FB0.5, -0.80).");
}

// Returns a task scored by an error rate, whose settings' scores are given on made_setting()'s scale.
TaskResult with_errors(TaskResult task) {
  task.metric = "command";
  task.command = metrics::CommandOptions{.command = {}, .label = "errors", .lower_is_better = true};
  task.baseline.quality.scores.front().name = "errors";
  for (SettingResult& setting : task.settings) setting.quality.scores.front().name = "errors";
  return task;
}

TEST(Headline, OfAnErrorRateTakesTheFastestThatAddsLittle) {
  EXPECT_THAT(headline(with_errors(made_task({made_setting("bild.small.FB0.5", "bild", 2, 30.8, "small"),
                                              made_setting("bild.small.FB0.3", "bild", 4, 33, "small")}))),
              HasSubstr("within one point of errors is 2.00 ±0.05 × as fast (bild.small.FB0.5, +0.80)"));
  EXPECT_THAT(headline(with_errors(made_task({made_setting("bild.small.FB0.3", "bild", 4, 33, "small")}))),
              HasSubstr("othing within one point of errors is faster"));
}

TEST(Headline, SaysWhenNothingIsFasterAndStandsWithoutLosslessSettings) {
  EXPECT_EQ(headline(made_task({made_lossless("assisted.small", "assisted", 1.03)})),
            "No lossless method is measurably faster (the best: 1.03 ±0.05 ×, assisted.small).");
  SettingResult unsure = made_lossless("assisted.lookup", "assisted", 1.36);
  unsure.speed.speedup.interval = {0.6, 2.2};
  EXPECT_THAT(headline(made_task({unsure, made_lossless("assisted.small", "assisted", 1.2)})), HasSubstr("up to 1.20"));
  EXPECT_THAT(headline(made_task({unsure, made_setting("bild.small", "bild", 1.3, 29.5, "small")})),
              HasSubstr("the best within one point of BLEU is 1.30"));
  EXPECT_EQ(headline(made_task({made_setting("bild.small", "bild", 2, 29.5, "small")})),
            "The best within one point of BLEU is 2.00 ±0.05 × as fast (bild.small, -0.50).");
  EXPECT_EQ(headline(made_task({})), "");
  SettingResult other = made_lossless("early-exit.early.exit2", "early-exit", 3);  // what another model writes alone
  other.params["model"] = "early";
  EXPECT_THAT(headline(made_task({other, made_lossless("assisted.small", "assisted", 1.2)})),
              AllOf(HasSubstr("up to 1.20"), HasSubstr("within one point of BLEU is 3.00")));
}

TEST(Headline, CountsNoSettingThatProvesNothing) {
  SettingResult failed = made_lossless("failed", "assisted", 9);
  failed.lossless_check = false;
  failed.quality.difference->value = -2;
  SettingResult repeated = made_lossless("A/A greedy", "greedy", 8, "");
  repeated.repeats = "greedy";
  SettingResult broken = made_lossless("broken", "speculative", 6);
  broken.failed_lines = FailedLines{.lines = 1, .first = 0, .failure = "no numbers"};
  SettingResult sampled = made_lossless("sampled", "speculative", 5);
  sampled.baseline = "sample";
  SettingResult oracle = made_lossless("oracle", "speculative", 3);
  oracle.params["window_rule"] = "oracle";  // knows the target's output
  const TaskResult task =
      made_task({failed, repeated, broken, sampled, oracle, made_lossless("right", "assisted", 1.5)});
  EXPECT_EQ(
      headline(task),
      "Lossless methods are up to 1.50 ±0.05 × as fast at the same BLEU (right); nothing within one point of BLEU is "
      "faster.");
}

TEST(Headline, EndsTheConsolesTablesAndBeginsPages) {
  Results results{.suite = "s", .tasks = {made_task({made_lossless("assisted.small", "assisted", 2)})}};
  const std::string line = "Lossless methods are up to 2.00 ±0.05 × as fast at the same BLEU (assisted.small).";
  EXPECT_THAT(results_table(results), EndsWith(line + "\n"));
  EXPECT_THAT(report_markdown(results), HasSubstr("# s\n\n" + line + "\n"));
  EXPECT_THAT(report_html(results), HasSubstr("<p class=\"headline\">Lossless methods are up to 2.00 ±0.05 × as fast"));
}

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
  Results results{.suite = "s"};
  results.tasks = {
      named_task("val a", true, {made_setting("bild.small.FB0.5", "bild", 2, 29.5, "small")}),
      named_task("val b", true, {made_setting("other.small.FB0.5", "bild", 2, 29.5, "small")}),
      named_task("test a", false, {chosen_on("val a", "bild.small.drop1"), chosen_on("val b", "other.small.drop1")}),
      named_task("test b", false, {chosen_on("val a", "bild.small.drop1"), chosen_on("val a", "bild.small.drop2")})};
  return results;
}

TEST(TaskOrder, PagesFollowIt) {
  const std::string page = report_markdown(validated_results());
  EXPECT_LT(page.find("\ntest a, "), page.find("\n- test b, "));
  EXPECT_NE(page.find("\n- test b, "), std::string::npos);
  EXPECT_THAT(page, Not(HasSubstr("- val")));
  EXPECT_LE(widest_line(page), 120u);
  EXPECT_THAT(report_html(validated_results()),
              HasSubstr("<h2 id=\"task3\">val a, where settings were chosen</h2>\n<p class=\"purpose\">The"));
}

TEST(Categories, OfADataSetHaveMeansThatPagesBeginWith) {
  Results results{.suite = "s"};
  results.tasks = {named_task("set.first", false, {made_lossless("x", "assisted", 2), made_lossless("y", "bild", 3)}),
                   named_task("set.second", false, {made_lossless("x", "assisted", 0.5)})};
  EXPECT_THAT(report_markdown(results), HasSubstr("\nset.first, 0 lines:\n")) << "they are scored";
  for (TaskResult& task : results.tasks) {
    task.metric = "none";
    task.baseline.quality = {};
    for (SettingResult& setting : task.settings) setting.quality = {};
  }
  const std::string mean = "No lossless method is measurably faster (the best: 1.00 ±0.05 ×, x).\n";
  const std::string page = report_markdown(results);
  EXPECT_THAT(page, HasSubstr("# s\n\n" + mean));
  EXPECT_THAT(page, HasSubstr("\nset, mean of 2 categories, 0 lines:\n"));
  EXPECT_THAT(page, HasSubstr("| run | first | second | all |\n|:---|---:|---:|---:|\n"));
  EXPECT_THAT(page, AllOf(HasSubstr("| x | 2.00 | 0.50 | 1.00 ±0.05 |\n"), HasSubstr("\n- set.first, 0 lines: ")));
  EXPECT_THAT(results_table(results), AllOf(EndsWith("\nset, mean of 2 categories: " + mean),
                                            HasSubstr("\ny        3.00\n")));  // which a category lacks
  results.tasks[1].settings[0].lossless_check.reset();
  EXPECT_THAT(report_markdown(results), HasSubstr("# s\n\n<!--")) << "one category is not checked";
}

TEST(LeadingSettings, AreTheBestOfEachKindThatLosesLittle) {
  const auto names = [](const TaskResult& task) {
    std::string joined;
    for (const SettingResult* row : leading_settings(task)) joined += row->name + " ";
    return joined;
  };
  TaskResult task = made_task({made_setting("alone", "greedy", 9, 25), made_lossless("a.2", "assisted", 2, "a"),
                               made_lossless("a.3", "speculative", 3, "a"), made_lossless("b", "assisted", 1, "b"),
                               made_setting("bild.a", "bild", 4, 27), made_setting("bild.b", "bild", 3, 29.5)});
  EXPECT_EQ(names(task), "greedy alone a.3 b bild.b ");
  for (char name = 'c'; name < 'k'; ++name) task.settings.push_back(made_lossless({name}, "assisted", 1.5, {name}));
  EXPECT_EQ(names(task), "greedy a.3 b bild.b c d e f g h i j ");
}

TEST(LeadingSettings, HaveBarsOfTheirSpeedups) {
  const std::string page = leading_markdown(made_task({made_lossless("a", "assisted", 1.95, "a")}));
  EXPECT_THAT(page, HasSubstr(fmt::format("```\n{:█<29}▒▒▒ greedy\n{:█<57}▒▒▒ a\n```\n", "", "")));
  const std::string cut = leading_markdown(made_task({made_setting("alone", "greedy", 9, 25)}));
  EXPECT_THAT(cut, HasSubstr(fmt::format("\n{:█<60} alone, beyond\n", "")));
}

TEST(MarkdownPage, WrittenAgainItKeepsWhatIsWrittenByHand) {
  Results results{.suite = "s", .tasks = {made_task({made_lossless("assisted.small", "assisted", 2)})}};
  const std::string by_hand = replace_all(report_markdown(results), "Question:", "Question: Who <!-- knows -->?");
  results.environment["commit"] = "abc";
  const std::string expected = replace_all(by_hand, "commit not recorded", "commit abc");
  EXPECT_EQ(keep_handwritten(report_markdown(results), by_hand, "s.md"), expected);
  const std::string open = by_hand.substr(0, by_hand.rfind("<!-- e"));
  const std::string inner = replace_all(by_hand, "<!-- knows -->", "<!-- end --> mine");
  for (const std::string& other : {std::string("mine"), by_hand + by_hand, open, inner}) {
    EXPECT_THAT(error_of([&] { keep_handwritten(by_hand, other, "s.md"); }), HasSubstr("expected: two parts from"));
  }
}

Results results_of_one_task(const TaskResult& task) {
  Results results{.suite = "s", .tasks = {task}};
  return results;
}

TEST(ReportPage, HoldsAllThatItNeeds) {
  const std::string page =
      report_html(results_of_one_task(made_task({made_lossless("assisted.small", "assisted", 2)})));
  for (const char* piece : {"name=\"viewport\"", "prefers-color-scheme: dark", "@media print", "d3-scale",
                            "Redistributions in binary form must reproduce", "THE SOFTWARE IS PROVIDED \"AS IS\""}) {
    EXPECT_THAT(page, HasSubstr(piece));
  }
  for (const char* elsewhere : {"src=", "<link", "@import", "url("}) EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
}

TEST(ReportPage, TextsOfTheProgramEndNoElementEarly) {
  EXPECT_EQ(page_texts().size(), 12u + 4u);  // D3's parts and our files
  for (const EmbeddedText& file : page_texts()) {
    EXPECT_THAT(std::string(file.text), Not(HasSubstr("</s"))) << file.name;
    if (file.name.ends_with("LICENCE")) {
      EXPECT_THAT(std::string(file.text), Not(HasSubstr("*/")));
    }
  }
}

TEST(ReportPage, NamesAreEscaped) {
  const std::string name = "</script><script>alert('1')</script>";
  Results results = results_of_one_task(made_task({made_lossless(name, name, 2, name)}));
  results.suite = name;
  results.tasks[0].name = name;
  results.environment = {{name, name}, {"command", name}, {"cpu", name}};
  results.options = {{name, name}};
  const std::string page = report_html(results);
  EXPECT_THAT(page, AllOf(Not(HasSubstr(name)), Not(HasSubstr("<script>alert"))));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;script&gt;alert('1')"));
}

TEST(ReportPage, IllFormedTextIsReplaced) {
  Results results = results_of_one_task(made_task({made_lossless("\xff\xfe", "assisted", 2)}));
  results.suite = "a\xc3";
  const std::string page = report_html(results);
  EXPECT_FALSE(invalid_utf8_offset(page).has_value());
  EXPECT_THAT(page, HasSubstr(std::string(kReplacementText)));
}

TEST(ReportPage, ManyNotesAreFoldedButNoErrors) {
  TaskResult task = made_task({});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    SettingResult setting = made_setting(name, "bild", 2.0 + static_cast<double>(task.settings.size()), 29, "small");
    setting.exactness.emplace().lines = 10;
    setting.exactness->differing_lines = 3;
    task.settings.push_back(setting);
  }
  task.failures = {{"a", "timing", "something is wrong"}};
  const std::string page = report_html(results_of_one_task(task));
  const size_t folded = page.find("<details><summary>5 notes</summary>");
  ASSERT_NE(folded, std::string::npos);
  EXPECT_LT(page.find("<p class=\"error\">! a failed during timing: something is wrong"), folded);
}

}  // namespace
}  // namespace draftsmith::evaluate
