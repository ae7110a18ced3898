// results.json comes back as it was written, and what is missing stays missing.
#include "evaluate/results/results.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Errors of a damaged or foreign file name the key, what was expected there and what was found.
TEST(ResultsFile, ValuesThatNoEvaluationWritesAreRefused) {
  const ordered_json sound = some_results();
  const auto refusal = [&](const std::string& place, const ordered_json& value) {
    ordered_json json = sound;
    json[ordered_json::json_pointer(place)] = value;
    return error_of([&] { results_from_json(json, "a/results.json"); });
  };
  EXPECT_EQ(refusal("/suite", "another"), "no error");
  EXPECT_THAT(refusal("/tasks/0/runs/1/speed/speedup", "fast"),
              AllOf(HasSubstr("a/results.json: is no results.json: wrong value of tasks[0].runs[1].speed.speedup"),
                    HasSubstr("expected: a number"), HasSubstr("found:    \"fast\"")));
  EXPECT_THAT(refusal("/tasks/0/runs/1/quality/bleu_ci95", 3),
              AllOf(HasSubstr("tasks[0].runs[1].quality.bleu_ci95"), HasSubstr("expected: a list of two numbers")));
  EXPECT_THAT(refusal("/tasks/0/runs", 7), AllOf(HasSubstr("tasks[0].runs"), HasSubstr("expected: a list")));
  EXPECT_THAT(refusal("/tasks/0/baseline", "greedy"), HasSubstr("expected: an object"));
  EXPECT_THAT(refusal("/tasks/0/baseline/name", ""), HasSubstr("expected: a setting's name"));
  EXPECT_THAT(refusal("/tasks/0/metric", "blue"), HasSubstr("expected: a metric's name"));
  EXPECT_THAT(refusal("/environment", 7), HasSubstr("expected: an object"));
  for (const ordered_json& version : {ordered_json(2), ordered_json("one"), ordered_json()}) {
    EXPECT_THAT(refusal("/version", version),
                AllOf(HasSubstr("wrong value of version"), HasSubstr("expected: 1"),
                      HasSubstr("found:    " + version.dump()), HasSubstr("evaluate again")));
  }
  EXPECT_THAT(error_of([&] { results_from_json({1, 2}, "file"); }), HasSubstr("expected: an object"));
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

}  // namespace
}  // namespace draftsmith::evaluate
