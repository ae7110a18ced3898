// Sections of reports: what they show of made-up results.
#include "evaluate/report/sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

MatchRateResult some_rates() {
  return {.name = "",
          .task = "test",
          .model = "target",
          .prompts = 5,
          .cells = {{"greedy", 2, 1, false, "1-2", 3, 8},
                    {"greedy", 2, 1, false, "total", 4, 12},
                    {"greedy", 2, 1, true, "1-2", 7, 8},
                    {"greedy", 2, 1, true, "total", 10, 12},
                    {"top-k", 2, 1, false, "1-2", 0, 0},
                    {"top-k", 2, 1, false, "total", 1, 4}}};
}

Results results_with(const MatchRateResult& rates) {
  Results results;
  results.tasks.emplace_back().name = "test";
  results.match_rates = {rates};
  return results;
}

TEST(MatchRateSection, CsvHasALineForEachCell) {
  const TemporaryDirectory folder;
  write_match_rates(some_rates(), folder.path());
  EXPECT_EQ(read_file(folder / "match_rates.csv"),
            "decoding,layer,k,head,positions,matches,tokens,rate\n"
            "greedy,2,1,own,1-2,3,8,0.375000\n"
            "greedy,2,1,own,total,4,12,0.333333\n"
            "greedy,2,1,trained,1-2,7,8,0.875000\n"
            "greedy,2,1,trained,total,10,12,0.833333\n"
            "top-k,2,1,own,1-2,0,0,\n"
            "top-k,2,1,own,total,1,4,0.250000\n");
}

TEST(MatchRateSection, TheTableShowsTotalsOfEachDecoding) {
  const std::string text = results_table(results_with(some_rates()));
  EXPECT_THAT(text, HasSubstr("match rates of early predictions (5 prompts of test, model target)\n"
                              "match rates of early predictions, % of new tokens\n"
                              "layer  k  head     greedy  top-k\n"));
  EXPECT_THAT(text, HasSubstr("    2  1  own        33.3   25.0\n"));
}

TEST(MatchRateSection, PagesHaveATableByPositionForEachDecoding) {
  const std::string page = report_html(results_with(some_rates()));
  EXPECT_THAT(page, HasSubstr("match rates of greedy decoding by position"));
  EXPECT_THAT(page, AllOf(HasSubstr("37.5"), HasSubstr("87.5"), HasSubstr(">1-2<")));
  EXPECT_THAT(results_table(results_with(some_rates())), Not(HasSubstr("by position")));
}

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

// Returns the plot of quality and speed.
Figure speed_figure(const Results& results) {
  return quality_speed_parts({results, results.tasks.front()}, Form::kFull).front().figures.front();
}

TEST(LowerIsBetter, TheLineOfTradeOffsRunsThroughTheLowestScores) {
  const ordered_json falling{{3.0, 34.0}, {2.0, 31.0}, {1.2, 29.0}};
  const ordered_json plot = speed_figure(results_by("errors")).data;
  EXPECT_EQ(plot.at("series").at(0).at("line"), falling);
  EXPECT_EQ(plot.at("levels").at(1), (ordered_json{{"y", 31.0}, {"text", "one point more"}}));
  EXPECT_THAT(speed_figure(results_by("errors")).caption, HasSubstr("Down and to the right is better."));
  const ordered_json bleu = speed_figure(results_by("bleu")).data;
  EXPECT_EQ(bleu.at("series").at(0).at("line"), (ordered_json{{3.0, 34.0}}));
  EXPECT_EQ(bleu.at("levels").at(1).at("y"), 29.0);
}

TEST(LowerIsBetter, SettingsFarAboveAreLeftOutOfThePlot) {
  Results results = results_by("errors");
  results.tasks[0].settings[0].quality.scores.front().value = 40;
  results.tasks[0].settings[3].quality.scores.front().value = 10;
  EXPECT_THAT(speed_figure(results).caption,
              AllOf(HasSubstr("Left out, more than 6 above: "), HasSubstr("3.00 × at 40.00"), Not(HasSubstr("10.00"))));
}

TEST(LowerIsBetter, TablesSaySoAndSortFromTheLowest) {
  const std::string header =
      "<th scope=\"col\" class=\"lowest\" title=\"errors, with its 95 % interval; lower is better\">";
  EXPECT_THAT(report_html(results_by("errors")), HasSubstr(header));
  EXPECT_THAT(report_html(results_by("bleu")), AllOf(Not(HasSubstr("class=\"lowest\"")), HasSubstr("title=\"bleu, ")));
}

TEST(ShownSettings, TheFastestSettingsKeepTheirOrder) {
  const TaskResult task = made_task({made_lossless("a", "assisted", 2), made_lossless("b", "assisted", 3),
                                     made_lossless("c", "assisted", 1.5), made_lossless("d", "assisted", 4)});
  const auto drafts = [](const SettingResult& setting) { return !setting.drafter_name().empty(); };
  std::vector<std::string> names;
  const ShownSettings shown = fastest_settings(task, 3, drafts);
  for (const auto* setting : shown.settings) names.push_back(setting->name);
  EXPECT_THAT(names, testing::ElementsAre("a", "b", "d"));
  EXPECT_EQ(shown.left_out, " Shown: the 3 fastest of 4.");
  EXPECT_EQ(fastest_settings(task, 4, drafts).left_out, "");
}

TEST(BusyMachines, AreNotedInTableAndPages) {
  FakeSuite suite;
  FakeEngine engine;
  suite.options.run = {FakeSuite::run("speculative")};
  Results results = suite.evaluate(engine).results;
  EXPECT_TRUE(results.environment.at("other_load").is_number());
  results.environment["other_load"] = 0.04;
  EXPECT_THAT(results_table(results), Not(HasSubstr("Other processes")));
  results.environment["other_load"] = 0.5;
  for (const std::string& text : {results_table(results), report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, HasSubstr("Other processes used 50 %"));
  }
}

// A task of results.json with a run of calm for each pair.
ordered_json task_of(const std::vector<std::pair<double, double>>& speed_and_quality) {
  const auto run = [](const std::string& name, const std::string& group, double speedup, double quality) {
    return ordered_json{{"name", name},
                        {"group", group},
                        {"method", group},
                        {"params", ordered_json::object()},
                        {"baseline", "greedy"},
                        {"speed", {{"speedup", speedup}, {"speedup_decode", speedup}}},
                        {"quality", {{"bleu", quality}}}};
  };
  ordered_json task{{"name", "test"}, {"baseline", run("greedy", "greedy", 1, 30)}, {"runs", ordered_json::array()}};
  for (size_t i = 0; i < speed_and_quality.size(); ++i) {
    const auto [speedup, quality] = speed_and_quality[i];
    task["runs"].push_back(run("calm." + std::to_string(i), "calm", speedup, quality));
  }
  return task;
}

Results results_of(const ordered_json& task) {
  return results_from_json({{"version", 1}, {"suite", "s"}, {"environment", ordered_json::object()}, {"tasks", {task}}},
                           "here");
}

std::string page_of(const ordered_json& task) {
  return report_html(results_of(task));
}

ordered_json ppd_task(double decode) {
  ordered_json task = task_of({{decode, 30}});
  task["runs"][0]["inside"] = {{"layers", 6},           {"layer_runs_per_token", 14.0},
                               {"path_per_token", 5.1}, {"early_layer", 4},
                               {"candidates", 3},       {"match_rate", 0.5},
                               {"units_in_use", 2.4},   {"theorem", {{"speedup", 1.18}, {"units_in_use", 2.59}}}};
  return task;
}

TEST(InsideReport, SaysInWordsThatOneDeviceShowsNoneOfTheGain) {
  EXPECT_THAT(page_of(ppd_task(0.61)), HasSubstr("none of that gain"));
  EXPECT_THAT(page_of(ppd_task(0.61)), HasSubstr("speed with 2.59 units in use; measured on this one device "
                                                 "0.61, with 2.40 units"));
  EXPECT_THAT(page_of(ppd_task(1.1)), Not(HasSubstr("none of that gain")));
  EXPECT_THAT(page_of(ppd_task(0.61)), HasSubstr("Theorem 4.1"));
}

TEST(InsideReport, ShowsWhereTokensLeft) {
  ordered_json task = task_of({{1.3, 29}});
  task["runs"][0]["inside"] = {{"layers", 2},
                               {"layer_runs_per_token", 1.25},
                               {"path_per_token", 1.25},
                               {"average_exit_layer", 1.25},
                               {"exit_histogram", {75, 25}}};
  EXPECT_THAT(results_table(results_of(task)), HasSubstr("1.25"));
  EXPECT_THAT(page_of(task), HasSubstr("layer 1: 75.0 %"));
  EXPECT_THAT(results_table(results_of(task_of({{1, 30}}))), Not(HasSubstr("layers a token")));
}

}  // namespace
}  // namespace draftsmith::evaluate
