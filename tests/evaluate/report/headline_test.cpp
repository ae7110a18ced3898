// The sentence under a table, and the warning about other work.
#include "evaluate/report/headline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;
using testing::Not;

SettingResult measured(const std::string& name, double speedup, bool same_output) {
  SettingResult setting;
  setting.name = name;
  setting.method = "bild";
  setting.speed.speedup = {speedup, {speedup - 0.1, speedup + 0.1}};
  setting.exactness.emplace().lossless = same_output;
  if (same_output) setting.lossless_check = true;
  setting.quality.difference.emplace().value = same_output ? 0 : -1.333;
  return setting;
}

TEST(Headline, NamesTheFastestAndTheFastestOfTheSameOutput) {
  TaskResult task;
  task.settings = {measured("assisted", 1.5, true), measured("bild", 2.0, false), measured("slow", 1.2, true)};
  task.settings.push_back(measured("drafter alone", 9, false));
  task.settings.back().method = "greedy";
  EXPECT_EQ(
      headline_note(task),
      "  In words: the fastest is bild, 2.00 ±0.10 times the baseline's speed, -1.33 bleu; of those with the same "
      "output, assisted, 1.50 ±0.10 times");
}

TEST(Headline, SaysOnceWhatIsFastestWithTheSameOutput) {
  TaskResult task;
  task.settings = {measured("assisted", 1.5, true)};
  EXPECT_EQ(headline_note(task),
            "  In words: the fastest is assisted, 1.50 ±0.10 times the baseline's speed, with the same output");
}

TEST(Headline, IsEmptyWithoutDrafting) {
  TaskResult task;
  EXPECT_EQ(headline_note(task), "");
  task.settings = {measured("failed", 3, true)};
  task.settings.back().measurement_error = "the clock stood still";
  EXPECT_EQ(headline_note(task), "");
}

TEST(BusyNote, WarnsOfOtherWorkAlone) {
  Results results;
  EXPECT_EQ(busy_note(results), "");
  results.environment["other_load"] = 0.04;
  EXPECT_EQ(busy_note(results), "");
  results.environment["other_load"] = 0.457;
  EXPECT_THAT(busy_note(results), HasSubstr("Other processes used 46 % of the processors"));
}

TEST(BusyNote, ReachesTableAndPages) {
  FakeSuite suite;
  FakeEngine engine;
  suite.options.run = {suite.run("speculative")};
  Results results = suite.evaluate(engine).results;
  EXPECT_TRUE(results.environment.at("other_load").is_number());
  results.environment["other_load"] = 0.5;
  for (const std::string& text : {results_table(results), report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, HasSubstr("Other processes used 50 %"));
    EXPECT_THAT(text, HasSubstr("In words: the fastest is"));
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
