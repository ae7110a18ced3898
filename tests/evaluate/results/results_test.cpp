// Results of a suite: the summary of a task, results.json as it was written, and the page of Markdown.
#include "evaluate/results/results.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

TEST(ResultsFile, ResultsComeBackFromTheirJson) {
  FakeSuite suite({"bild", "assisted"});
  FakeEngine engine;
  const Results results = suite.evaluate(engine).results;
  const std::string text = to_json(results).dump(2) + "\n";
  EXPECT_EQ(text, read_file(suite.directory / "out/results.json"));
  const Results back = load_results(suite.directory / "out/results.json");
  EXPECT_EQ(to_json(back).dump(2) + "\n", text);
  EXPECT_EQ(results_csv(back), read_file(suite.directory / "out/results.csv"));
  EXPECT_EQ(report_html(back), read_file(suite.directory / "out/report.html"));
}

TEST(ResultsFile, ValuesThatNoEvaluationWritesAreRefused) {
  FakeSuite suite({"bild", "speculative"});
  suite.options.run.back().lists[&DecodeOptions::window] = {2};
  FakeEngine engine;
  const ordered_json sound = to_json(suite.evaluate(engine).results);
  const auto refusal = [&](const std::string& place, const ordered_json& value) {
    ordered_json json = sound;
    json[ordered_json::json_pointer(place)] = value;
    return error_of([&] { results_from_json(json, "a/results.json"); });
  };
  EXPECT_EQ(refusal("/suite", "another"), "no error");
  EXPECT_THAT(refusal("/tasks/0/runs/1/speed/speedup", "fast"),
              AllOf(HasSubstr("a/results.json: is no results.json: wrong value of tasks.0.runs.1.speed.speedup"),
                    HasSubstr("must be number, but is string")));
  EXPECT_THAT(refusal("/tasks/0/runs/1/quality/bleu_ci95", 3), HasSubstr("tasks.0.runs.1.quality.bleu"));
  EXPECT_THAT(refusal("/tasks/0/runs", 7), HasSubstr("tasks.0.runs"));
  EXPECT_THAT(refusal("/tasks/0/baseline", "greedy"), HasSubstr("tasks.0.baseline"));
  for (const ordered_json& version : {ordered_json(2), ordered_json("one"), ordered_json()}) {
    EXPECT_THAT(refusal("/version", version), AllOf(HasSubstr("expected: version 1"), HasSubstr("evaluate again"),
                                                    HasSubstr("found:    " + version.dump())));
  }
}

TEST(ResultsFile, DamagedOnesMayBeReplacedButNotThoseOfAnotherVersion) {
  const TemporaryDirectory folder;
  const auto file = folder / "results.json";
  EXPECT_NO_THROW(require_replaceable_results(file));
  for (const char* text : {"", "{\"version\": 1, \"suite\": ", "[1]", "{\"version\": 1, \"tasks\": 3}"}) {
    write_file_atomic(file, text);
    EXPECT_NO_THROW(require_replaceable_results(file)) << text;
  }
  write_file_atomic(file, "{\"version\": 99}");
  EXPECT_THAT(error_of([&] { require_replaceable_results(file); }), HasSubstr("found:    99"));
}

TEST(MarkdownPage, SaysWhatWasMeasuredWhereAndWhen) {
  FakeSuite suite({"bild"});
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
      "# evaluation\n\nThe best within one point of BLEU is 2.00 ±0.00 × as fast (bild.small.FB0.5.RB5, +0.00).\n\n"
      "<!-- by hand: stays when the page is written again -->\n* Question:\n* Target:\n* Expected:\n* Held:\n<!-- end "
      "-->\n\n"
      "Suite `evaluation`, commit 0123abc, 2026-11-22T12:00:00Z.\na fast processor, cores: 2, threads: 1, not "
      "recorded.\nWall time not recorded.\n\n```\ndraftsmith eval suite.toml\n```\n\ntest, 24 lines:\n\n| run | bleu "
      "|"))
      << page;
  EXPECT_THAT(page, HasSubstr("\n| bild.small.FB0.5.RB5 | "));
}

TEST(DrafterSummary, AModelThatDecodesAndDraftsStandsOnce) {
  MeasuredTask measured{.drafted_for = {{"small", "target"}, {"small/exit2", "small"}, {"tiny", "target"}}};
  measured.predicted["small"] = {0.6, 0.7, 9, {0.8, 1.25}, {0.5, 2.5}};
  measured.predicted["small/exit2"] = {0.5, 0.6, 9, {0.5, 2.5}, {0.4, 3.5}};  // its own first layers
  measured.predicted["tiny"] = {0.2, 0.3, 9, {0.8, 1.25}, {0.1, 4.5}};
  const TaskPrediction prediction = task_prediction(measured);
  std::vector<std::string> names;
  for (const auto& [name, model] : prediction.models) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"target", "small", "small/exit2", "tiny"}));
  EXPECT_EQ(prediction.models.at(0).second.cross_entropy, 1.25);
  EXPECT_FALSE(prediction.models.at(0).second.relative_accuracy.has_value());
  EXPECT_EQ(prediction.models.at(1).second.cross_entropy, 2.5);
  EXPECT_EQ(prediction.models.at(1).second.relative_accuracy, 0.7);  // what it says as a drafter
  EXPECT_EQ(prediction.positions, 9);
}

TEST(Choice, TakesTheFastestSettingThatLosesLittleEnough) {
  const auto candidate = [](const std::string& setting, double drop, double speedup) {
    return ChosenSetting{.setting = setting, .drop_there = drop, .speedup_there = speedup};
  };
  const std::vector<ChosenSetting> candidates{candidate("slow", -0.2, 1.1), candidate("good", 0.1, 1.5),
                                              candidate("fast", 0.8, 1.9), candidate("bad", 10, 3)};
  EXPECT_EQ(choose(candidates, 0)->setting, "slow");
  EXPECT_EQ(choose(candidates, 1)->setting, "fast");
  EXPECT_TRUE(choose(candidates, 1)->allowed);
  EXPECT_EQ(choose(candidates, 100)->setting, "bad");
  EXPECT_EQ(choose(candidates, -1)->setting, "slow") << "it loses least";
  EXPECT_FALSE(choose(candidates, -1)->allowed);
  EXPECT_FALSE(choose({}, 1).has_value());
}

}  // namespace
}  // namespace draftsmith::evaluate
