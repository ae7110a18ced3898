// The sentence that says what a suite found.
#include "evaluate/report/headline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith::evaluate {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(Headline, LeaveOutWindowsThatKnowTheTargetsOutput) {
  SettingResult oracle = made_lossless("oracle", "speculative", 3);
  oracle.params["window_rule"] = "oracle";
  const std::string words = headline(made_task({oracle, made_lossless("a", "assisted", 2)}));
  EXPECT_THAT(words, HasSubstr("2.00 ×"));
  EXPECT_THAT(words, testing::Not(HasSubstr("3.00 ×")));
}

TEST(Headline, NamesTheFastestLosslessSettingAndTheFastestNearIt) {
  const TaskResult task = made_task({made_lossless("speculative.small.T0.G4", "speculative", 2.41),
                                     made_lossless("assisted.small", "assisted", 2.2),
                                     made_setting("bild.small.FB0.5", "bild", 2.93, 29.2, "small"),
                                     made_setting("bild.small.FB0.3", "bild", 4, 27, "small")});
  EXPECT_EQ(
      headline(task),
      "Lossless methods are up to 2.41 × as fast at the same BLEU (speculative · small); the best within one point "
      "of BLEU is 2.93 × as fast (bild · small · FB0.5, -0.80).");
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
              HasSubstr("within one point of errors is 2.00 × as fast (bild · small · FB0.5, +0.80)"));
  EXPECT_THAT(headline(with_errors(made_task({made_setting("bild.small.FB0.3", "bild", 4, 33, "small")}))),
              HasSubstr("4.00 ×, adds 3.00 of errors"));
}

TEST(Headline, SaysWhenLossBringsNothing) {
  EXPECT_THAT(headline(made_task({made_lossless("a", "assisted", 2), made_setting("b", "bild", 1.9, 30, "small")})),
              EndsWith("; nothing within one point of BLEU is faster."));
}

TEST(Headline, NamesTheNearestWhereNoneIsNear) {
  const TaskResult task = made_task({made_lossless("assisted.small", "assisted", 1.54),
                                     made_setting("greedy.small", "greedy", 10, 12, "small"),
                                     made_setting("bild.small.FB0.5", "bild", 2.12, 28.75, "small"),
                                     made_setting("bild.small.FB0.3", "bild", 2.5, 28, "small")});
  EXPECT_THAT(headline(task), EndsWith("(assisted · small); the nearest that is faster, 2.12 ×, loses 1.25 of BLEU "
                                       "(bild · small · FB0.5)."));
}

TEST(Headline, SaysWhenNothingIsFaster) {
  EXPECT_EQ(headline(made_task({made_lossless("assisted.small", "assisted", 1.03)})),
            "No lossless method is measurably faster (the best: 1.03 ×, assisted · small).");
}

TEST(Headline, StandsWithoutLosslessSettings) {
  EXPECT_EQ(headline(made_task({made_setting("bild.small", "bild", 2, 29.5, "small")})),
            "The best within one point of BLEU is 2.00 × as fast (bild · small, -0.50).");
  EXPECT_EQ(headline(made_task({})), "");
}

TEST(Headline, CountsNoSettingThatProvesNothing) {
  SettingResult failed = made_lossless("failed", "assisted", 9);
  failed.lossless_check = false;
  failed.quality.difference->value = -2;
  SettingResult repeated = made_lossless("A/A greedy", "greedy", 8, "");
  repeated.repeats = "greedy";
  SettingResult wrong = made_lossless("wrong", "speculative", 7);
  wrong.measurement_error = "speedup_decode exceeds what the number of target runs allows";
  SettingResult broken = made_lossless("broken", "speculative", 6);
  broken.failed_lines = FailedLines{.lines = 1, .first = 0, .failure = "no numbers"};
  SettingResult sampled = made_lossless("sampled", "speculative", 5);
  sampled.baseline = "sample";
  const TaskResult task =
      made_task({failed, repeated, wrong, broken, sampled, made_lossless("right", "assisted", 1.5)});
  EXPECT_EQ(best_settings(task).lossless->name, "right");
  EXPECT_EQ(best_settings(task).near, nullptr);
}

TEST(Headline, EndsTheConsolesTablesAndBeginsPages) {
  Results results;
  results.suite = "s";
  results.tasks = {made_task({made_lossless("assisted.small", "assisted", 2)})};
  const std::string line = "Lossless methods are up to 2.00 × as fast at the same BLEU (assisted · small).";
  EXPECT_THAT(results_table(results), EndsWith(line + "\n"));
  EXPECT_THAT(report_markdown(results), HasSubstr("# s\n\n" + line + "\n"));
  EXPECT_THAT(report_html(results), HasSubstr("<p class=\"headline\">Lossless methods are up to 2.00 × as fast"));
}

TEST(Headline, NamesTasksWhereThereAreSeveral) {
  Results results;
  results.tasks = {made_task({made_lossless("a", "assisted", 2)}), made_task({made_lossless("a", "assisted", 3)}),
                   made_task({made_lossless("a", "assisted", 4)})};
  results.tasks[1].name = "stories";
  results.tasks[2].chooses = true;
  const auto lines = headlines(results);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], testing::StartsWith("stories: Lossless methods are up to 3.00"));
}

}  // namespace
}  // namespace draftsmith::evaluate
