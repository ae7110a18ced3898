// results.json comes back as it was written, and what is missing stays missing.
#include "evaluate/results/results.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

// Returns the JSON of an evaluation.
ordered_json some_results() {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild"), FakeSuite::run("speculative")};
  suite.options.run.back().lists[&DecodeOptions::window] = {2};
  FakeEngine engine;
  return to_json(suite.evaluate(engine).results);
}

TEST(ResultsFile, ResultsComeBackFromTheirJson) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild"), FakeSuite::run("assisted")};
  FakeEngine engine;
  const Results results = suite.evaluate(engine).results;
  const std::string text = to_json(results).dump(2) + "\n";
  EXPECT_EQ(text, read_file(suite.directory / "out/results.json"));
  const Results back = load_results(suite.directory / "out/results.json");
  EXPECT_EQ(to_json(back).dump(2) + "\n", text);
  EXPECT_EQ(results_csv(back), read_file(suite.directory / "out/results.csv"));
  EXPECT_EQ(report_html(back), read_file(suite.directory / "out/report.html"));
}

TEST(ResultsFile, SettingsAreFoundByName) {
  const Results results = results_from_json(some_results(), "here");
  const TaskResult& task = results.tasks.front();
  EXPECT_TRUE(std::isnan(task.baseline.acceptance.alpha));
  EXPECT_EQ(task.find("greedy"), &task.baseline);
  EXPECT_EQ(task.find(task.settings.front().name), &task.settings.front());
  EXPECT_EQ(task.find("nothing"), nullptr);
}

TEST(ResultsFile, MissingNumbersAreUnknown) {
  const Results results = results_from_json(
      ordered_json::parse(
          R"({"version": 1, "suite": "s", "environment": {}, "tasks": [{"name": "t", "baseline": {"name": "greedy"},
        "runs": [{"name": "bild.a", "method": "bild", "quality": {"bleu": 20}, "acceptance": {"alpha": null}}]}]})"),
      "here");
  const SettingResult& setting = results.tasks.front().settings.front();
  EXPECT_EQ(setting.quality.find("bleu")->value, 20);
  EXPECT_TRUE(std::isnan(setting.speed.speedup.value));
  EXPECT_TRUE(std::isnan(setting.acceptance.alpha));
  EXPECT_FALSE(setting.predicted.has_value());
  EXPECT_THAT(results_table(results), HasSubstr("greedy"));
  EXPECT_THAT(report_html(results), HasSubstr("bild.a"));
}

TEST(ResultsFile, WrongTypesAreRefused) {
  try {
    results_from_json(ordered_json::parse(R"({"version": 1, "suite": "s", "environment": {}, "tasks": [
      {"name": "t", "baseline": {}, "runs": [{"name": "a", "method": "bild", "speed": {"speedup": "fast"}}]}]})"),
                      "here.json");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("here.json"));
    EXPECT_THAT(error.what(), HasSubstr("is no results.json"));
  }
}

TEST(ResultsFile, UnknownMetricsAndNamelessBaselinesAreRefused) {
  const auto refusal = [](const std::string& key, const ordered_json& value) {
    ordered_json task = {{"name", "t"}, {"metric", "bleu"}, {"baseline", {{"name", "greedy"}}}};
    task["runs"] = ordered_json::array();
    task[key] = value;
    return error_of([&] {
      const ordered_json environment = ordered_json::object();
      results_from_json({{"version", 1}, {"suite", "s"}, {"environment", environment}, {"tasks", {task}}}, "here");
    });
  };
  for (const ordered_json& metric : {ordered_json(7), ordered_json("blue"), ordered_json()}) {
    EXPECT_THAT(refusal("metric", metric), HasSubstr("no 'metric' that is known of task 't'")) << metric;
  }
  EXPECT_THAT(refusal("baseline", {{"name", 7}}), HasSubstr("a 'baseline' without 'name' of task 't'"));
  EXPECT_THAT(refusal("baseline", {{"method", "greedy"}}), HasSubstr("a 'baseline' without 'name'"));
  EXPECT_EQ(refusal("baseline", ordered_json::object()), "no error");
  EXPECT_EQ(refusal("metric", "none"), "no error");
}

// A results.json may be edited by hand.
TEST(ResultsFile, ValuesOfAnotherTypeAreNotRecorded) {
  ordered_json json = some_results();
  json["environment"]["cores"] = 2;
  json["environment"]["threads"] = 1;
  json["environment"]["cpu"] = nullptr;
  json["environment"]["device"] = 3;
  json["environment"]["command"] = {"draftsmith", "eval"};
  json["environment"]["parameters"] = {{"target", "many"}, {"small", 0}};
  for (auto& task : json.at("tasks")) {
    for (auto& setting : task.at("runs")) {
      setting["params"] = {{"drafter", nullptr}, {"model", 1}, {"window", "wide"}};
    }
    task.at("baseline").at("params") = nullptr;
  }
  const Results results = results_from_json(json, "here");
  EXPECT_EQ(results.environment_text("cpu"), std::nullopt);
  EXPECT_EQ(results.environment_text("nothing"), std::nullopt);
  EXPECT_EQ(results.environment_number("cores"), 2);
  EXPECT_EQ(results.environment_number("dtype"), std::nullopt);
  EXPECT_EQ(results.parameters_of("target"), std::nullopt);
  EXPECT_EQ(results.parameters_of("small"), std::nullopt);
  const SettingResult& setting = results.tasks.front().settings.front();
  EXPECT_EQ(setting.model(), "target");
  EXPECT_EQ(setting.drafter_name(), "");
  EXPECT_EQ(setting.window(), std::nullopt);
  EXPECT_THAT(report_markdown(results),
              AllOf(HasSubstr("\ncpu not recorded, 2 cores, threads: 1"), HasSubstr("The command was not recorded.")));
  EXPECT_THAT(results_table(results), HasSubstr("greedy"));
  EXPECT_THAT(report_html(results), HasSubstr("<dt>cpu</dt><dd>not recorded</dd>"));
}

TEST(ResultsFile, AccessorsReadWhatTheSuiteGave) {
  ordered_json json = some_results();
  json["environment"]["parameters"] = {{"small", 8048}};
  const Results results = results_from_json(json, "here");
  EXPECT_EQ(results.parameters_of("small"), 8048);
  const std::vector<SettingResult>& settings = results.tasks.front().settings;
  ASSERT_GE(settings.size(), 2U);
  const auto bild = std::ranges::find(settings, "bild", &SettingResult::method);
  ASSERT_NE(bild, settings.end());
  EXPECT_TRUE(bild->falls_back());
  const SettingResult& speculative = settings.back();
  EXPECT_EQ(speculative.window(), 2);
  EXPECT_EQ(speculative.drafter_name(), "small");
  EXPECT_EQ(speculative.model(), "target");
  EXPECT_FALSE(speculative.falls_back());
}

TEST(MarkdownPage, SaysWhatWasMeasuredWhereAndWhen) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  suite.options.forced_lines = 5;
  FakeEngine engine;
  Results results = suite.evaluate(engine).results;
  results.environment["command"] = "draftsmith eval suite.toml";
  results.environment["commit"] = "0123abc";
  results.environment["cpu"] = "a fast processor";
  results.environment["cores"] = 2;
  results.environment["threads"] = 1;
  results.environment["date"] = "2026-11-22T12:00:00Z";
  const std::string page = report_markdown(results);
  EXPECT_TRUE(page.starts_with(
      "# evaluation\n\nThe best within one point of BLEU is 2.00 × as fast (bild.small.FB0.5.RB5, +0.00).\n\n"
      "Suite `evaluation`, commit 0123abc, 2026-11-22T12:00:00Z.\na fast processor, 2 "
      "cores, threads: 1, dtype not recorded.\n\n```\ndraftsmith eval suite.toml\n```\n"))
      << page;
  EXPECT_THAT(page, HasSubstr("\n## test\n"));
  EXPECT_THAT(page, HasSubstr("\n| run | bleu | diff | speedup |"));
  EXPECT_THAT(page, HasSubstr("\n| bild.small.FB0.5.RB5 | "));
  EXPECT_THAT(page, HasSubstr("\n### How well each drafter predicts\n"));
}

TEST(MarkdownPage, BreaksLongCommandsBeforeOptions) {
  Results results;
  results.environment = nlohmann::ordered_json::object();
  std::string command = "draftsmith train recipe.toml";
  for (int i = 0; i < 8; ++i) command += " --set evaluation.lines=" + std::to_string(i);
  results.environment["command"] = command;
  const std::string page = report_markdown(results);
  EXPECT_LE(widest_line(page), 120U) << page;
  EXPECT_THAT(page, HasSubstr("lines=2 \\\n  --set evaluation.lines=3"));
}

TEST(ResultsFile, AnotherVersionIsRefused) {
  ordered_json json = some_results();
  EXPECT_EQ(json.at("version"), 1);
  for (const ordered_json& version : {ordered_json(2), ordered_json("one"), ordered_json()}) {
    json["version"] = version;
    EXPECT_THAT(error_of([&] { results_from_json(json, "a/results.json"); }),
                AllOf(HasSubstr("a/results.json: the results have another version"), HasSubstr("expected: 'version' 1"),
                      HasSubstr("found:    " + version.dump()), HasSubstr("evaluate again")));
  }
  json.erase("version");
  EXPECT_THAT(error_of([&] { results_from_json(json, "file"); }), HasSubstr("no number 'version'"));
}

}  // namespace
}  // namespace draftsmith::evaluate
