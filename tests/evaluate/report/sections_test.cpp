// Sections of reports: what they show of made-up results, of draft windows, and of batches.
#include "evaluate/report/sections.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/evaluate/made_results.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

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

Results four_settings() {
  Results results{.suite = "s"};
  results.tasks = {
      made_task({made_setting("fast", "bild", 3, 28, "small"), made_setting("middle", "bild", 2, 31, "small"),
                 made_setting("beaten", "bild", 1.5, 30, "small"), made_setting("careful", "bild", 1.2, 33, "small")})};
  return results;
}

TEST(QualityAndSpeed, TheLineOfTradeOffsLeavesOutWhatIsBeaten) {
  Results results = four_settings();
  results.tasks.front().settings.push_back(made_setting("alone", "greedy", 9, 27));
  const Figure figure = quality_speed_parts({results, results.tasks.front()}, Form::kFull).front().figures.front();
  EXPECT_THAT(figure.caption, HasSubstr("times as fast as all that lose little: alone (9.00 × at 27.00)."));
  const ordered_json& plot = figure.data;
  EXPECT_EQ(plot.at("series").at(0).at("line"), (ordered_json{{3.0, 28.0}, {2.0, 31.0}, {1.2, 33.0}}));
  EXPECT_EQ(plot.at("levels").at(1), (ordered_json{{"y", 29.0}, {"text", "one point less"}}));
}

TEST(Notes, RowsWhoseIntervalsOverlapAreEquallyFast) {
  const auto table_of = [](const TaskResult& task) {
    Results results;
    results.tasks = {task};
    return results_table(results);
  };
  TaskResult task = made_task({made_lossless("a", "assisted", 1.5), made_setting("b", "bild", 2, 28, "small"),
                               made_lossless("c", "assisted", 1.42), made_setting("d", "bild", 2.08, 28, "small"),
                               made_lossless("e", "assisted", 1.3)});
  EXPECT_THAT(table_of(task), HasSubstr("  Equally fast, as far as ± tells: d, b; a, c\n"));
  task.settings[3].baseline = "sample";  // of another temperature
  EXPECT_THAT(table_of(task), HasSubstr("  Equally fast, as far as ± tells: a, c\n"));
  task.settings.erase(task.settings.begin());
  EXPECT_THAT(table_of(task), Not(HasSubstr("Equally fast")));
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
  Results results = four_settings();
  results.environment["other_load"] = 0.04;
  EXPECT_THAT(results_table(results), Not(HasSubstr("Other processes")));
  results.environment["other_load"] = 0.5;
  for (const std::string& text : {results_table(results), report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, AllOf(HasSubstr("Other processes used 50 %"), Not(HasSubstr("times as long"))));
  }
  results.environment["slowdown"] = {{"least", 1.04}, {"most", 1.37}};
  EXPECT_THAT(report_html(results), HasSubstr("rows took 1.04 to 1.37 times as long as in their fastest repetitions"));
}

TEST(InsideReport, ShowsWhereTokensLeft) {
  const std::vector<int64_t> left{75, 25};
  SettingResult setting = made_setting("calm.0", "calm", 1.3, 30);
  setting.speed.speedup_decode = setting.speed.speedup;
  setting.inside = Inside{.layers = 2, .path_per_token = 1.25, .average_exit_layer = 1.25, .exit_histogram = left};
  const Results results{.tasks = {made_task({setting})}};
  EXPECT_THAT(results_table(results), AllOf(HasSubstr("layers a token"), HasSubstr("1.25")));
  EXPECT_THAT(report_html(results), HasSubstr("layer 1: 75.0 %"));
}

// Prompts without references, a grid over windows whose fastest is 4.
struct WindowSuite : FakeSuite {
  WindowSuite() {
    options.task[0].references.clear();
    options.task[0].metric.name = "none";
    options.run = {run("speculative")};
    options.run[0].lists[&DecodeOptions::temperature] = {0};
    options.run[0].lists[&DecodeOptions::window] = {1, 2, 4, 7};
    engine.seconds = [](const Setting& setting, int64_t) {
      if (!setting.decode.drafts()) return 0.1;
      return *setting.decode.window == 4 ? 0.05 : 0.08;
    };
  }
  FakeEngine engine;
};

TEST(WindowCurves, ThePromptsOfATaskNeedNoReferences) {
  WindowSuite suite;
  const auto result = suite.evaluate(suite.engine);
  const auto task = to_json(result.results).at("tasks").at(0);
  EXPECT_EQ(task.at("metric"), "none");
  EXPECT_TRUE(task.at("baseline").at("quality").empty());
  EXPECT_NEAR(task.at("runs").at(3).at("speed").at("speedup").get<double>(), 2, 1e-3);
  EXPECT_THAT(result.table, Not(HasSubstr("bleu")));
  EXPECT_THAT(read_file(suite.directory / "out/report.html"), Not(HasSubstr("Quality and speed")));
  EXPECT_THAT(read_file(suite.directory / "out/results.csv"), HasSubstr("test,greedy,greedy"));
}

TEST(WindowCurves, TheTableNamesTheBestWindow) {
  WindowSuite suite;
  const auto result = suite.evaluate(suite.engine);
  const auto begin = result.table.find("best window");
  ASSERT_NE(begin, std::string::npos) << result.table;
  const std::string table = result.table.substr(begin);
  EXPECT_THAT(table, testing::ContainsRegex("speculative T=0  small \\* +4 of 4 +0\\.800 +2\\.00"));
  EXPECT_LE(widest_line(table), 100u) << table;
  EXPECT_THAT(read_file(suite.directory / "out/report.html"), HasSubstr("<figure class=\"plot\">"));
}

// 24 lines of 0.1 s by greedy decoding and 0.05 s by drafting, whatever the batch.
TEST(Batches, BaselinesHaveTheSameSizeAndSentencesWaitForTheirBatch) {
  FakeEngine engine;
  engine.detailed = true;
  FakeSuite suite({"assisted"});
  suite.options.run[0].lists[&DecodeOptions::batch_size] = {1, 3, 16};
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(setting_of(results, "assisted.small").baseline, "greedy");
  const SettingResult& sixteen = setting_of(results, "assisted.small.batch16");
  EXPECT_EQ(sixteen.baseline, "greedy.batch16");
  EXPECT_NEAR(sixteen.speed.speedup.value, 2, 1e-9);
  EXPECT_NEAR(sixteen.speed.sentences_per_second, 20, 1e-9);
  EXPECT_NEAR(sixteen.speed.latency.sentence_ms.p50, 800, 1e-6);
  EXPECT_NEAR(setting_of(results, "assisted.small").speed.latency.sentence_ms.p99, 50, 1e-6);
  EXPECT_THAT(results_table(results), Not(HasSubstr("sent/s")));
  EXPECT_THAT(report_html(results), HasSubstr("Throughput and latency"));
  EXPECT_THAT(results_csv(results), HasSubstr("speed.latency.sentence_ms.p50,speed.latency.sentence_ms.p95"));
  const nlohmann::ordered_json json = to_json(results).at("tasks").at(0).at("baseline").at("speed");
  EXPECT_NEAR(json.at("latency").at("sentence_ms").at("p95").get<double>(), 100, 1e-6);
  EXPECT_NEAR(json.at("sentences_per_second").get<double>(), 10, 1e-9);
}

TEST(Batches, SampledSettingsHaveSizesOfTheirOwnToo) {
  FakeEngine engine;
  FakeSuite suite({"speculative"});
  suite.options.run[0].lists[&DecodeOptions::batch_size] = {16};
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(setting_of(results, "speculative.small.T1.batch16").baseline, "sample.T1.batch16");
}

}  // namespace
}  // namespace draftsmith::evaluate
