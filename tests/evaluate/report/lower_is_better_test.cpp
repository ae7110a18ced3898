// Plots, tables and headlines of measures whose lower values are the better ones: commands that say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/headline.h"
#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"
#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Returns settings whose trade-offs differ by direction: with lower scores better, all but "beaten" and greedy decoding
// are the best at some quality; with higher ones, "fast" is the best at all.
Results results_by(const std::string& score) {
  TaskResult task =
      made_task({made_setting("fast", "bild", 3, 34, "small"), made_setting("middle", "bild", 2, 31, "small"),
                 made_setting("beaten", "bild", 1.5, 33, "small"), made_setting("careful", "bild", 1.2, 29, "small")});
  if (score != "bleu") {
    task.metric = "command";
    task.command = metrics::CommandOptions{.command = {}, .label = score, .point = 1, .lower_is_better = true};
  }
  task.baseline.quality.scores.front().name = score;
  for (SettingResult& setting : task.settings) setting.quality.scores.front().name = score;
  Results results;
  results.suite = "s";
  results.tasks = {std::move(task)};
  return results;
}

ordered_json plot_of(const Section& section, const Results& results) {
  return section.parts({results, results.tasks.front()}, Form::kFull).front().figures.front().data;
}

std::string caption_of(const Section& section, const Results& results) {
  return section.parts({results, results.tasks.front()}, Form::kFull).front().figures.front().caption;
}

TEST(LowerIsBetter, TheLineOfTradeOffsRunsThroughTheLowestScores) {
  const ordered_json falling{{3.0, 34.0}, {2.0, 31.0}, {1.2, 29.0}};
  const ordered_json plot = plot_of(quality_speedup_section(), results_by("errors"));
  EXPECT_EQ(plot.at("series").at(0).at("line"), falling);
  EXPECT_EQ(plot.at("levels").at(1), (ordered_json{{"y", 31.0}, {"text", "one point more"}}));
  EXPECT_THAT(caption_of(quality_speedup_section(), results_by("errors")),
              HasSubstr("Down and to the right is better."));
  const ordered_json bleu = plot_of(quality_speedup_section(), results_by("bleu"));
  EXPECT_EQ(bleu.at("series").at(0).at("line"), (ordered_json{{3.0, 34.0}}));
  EXPECT_EQ(bleu.at("levels").at(1).at("y"), 29.0);
}

TEST(LowerIsBetter, TheLineAgainstLatencyRunsThroughTheLowestScores) {
  const ordered_json plot = plot_of(quality_latency_section(), results_by("errors"));
  const ordered_json falling{{1 / 3.0, 34.0}, {1 / 2.0, 31.0}, {1 / 1.2, 29.0}};
  EXPECT_EQ(plot.at("series").at(0).at("line"), falling);
  EXPECT_EQ(plot.at("levels").at(1).at("text"), "one point more");
  EXPECT_EQ(plot_of(quality_latency_section(), results_by("bleu")).at("series").at(0).at("line"),
            (ordered_json{{1 / 3.0, 34.0}}));
}

TEST(LowerIsBetter, SettingsFarAboveAreLeftOutOfThePlot) {
  Results results = results_by("errors");
  results.tasks[0].settings[0].quality.scores.front().value = 40;
  results.tasks[0].settings[3].quality.scores.front().value = 10;
  EXPECT_THAT(caption_of(quality_speedup_section(), results),
              AllOf(HasSubstr("Left out, more than 6 above: "), HasSubstr("3.00 × at 40.00"), Not(HasSubstr("10.00"))));
}

TEST(LowerIsBetter, HeadlinesTakeTheFastestThatAddsAtMostAPoint) {
  const Results results = results_by("errors");
  EXPECT_EQ(best_settings(results.tasks.front()).near->name, "middle");
  EXPECT_THAT(headline(results.tasks.front()), HasSubstr("within one point of errors is 2.00 × as fast"));
}

TEST(LowerIsBetter, TablesSaySoAndSortFromTheLowest) {
  const std::string header =
      "<th scope=\"col\" class=\"lowest\" title=\"errors, with its 95 % interval; lower is better\">";
  EXPECT_THAT(report_html(results_by("errors")), HasSubstr(header));
  EXPECT_THAT(report_html(results_by("bleu")), AllOf(Not(HasSubstr("class=\"lowest\"")), HasSubstr("title=\"bleu, ")));
}

}  // namespace
}  // namespace draftsmith::evaluate
