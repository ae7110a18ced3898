// Summary of a task: example outputs by their tokens' origins, drafters, choices.
#include "evaluate/results/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

using infer::TokenOrigin;

// Two tokens are drafted and kept, one is taken back, one is the target's.
class TracingEngine : public FakeEngine {
 public:
  // A high threshold drafts better.
  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    tokens_per_run = run.decode.fallback == 0.7 ? 4 : 3;
    return FakeEngine::decode(run, batch);
  }
  std::vector<infer::TracedToken> trace(const Setting& run, const Prompt&, int64_t line, int64_t) override {
    traced.emplace_back(run.label, line);
    return {{10, TokenOrigin::kDrafted},
            {11, TokenOrigin::kDrafted},
            {98, TokenOrigin::kRejected},
            {12, TokenOrigin::kTarget}};
  }
  std::vector<std::pair<std::string, int64_t>> traced;
};

std::vector<std::string> origins_and_texts(const ExampleOutput& output) {
  std::vector<std::string> texts;
  for (const TokenText& token : output.tokens) texts.push_back(token.origin + ":" + token.text);
  return texts;
}

TEST(Examples, ShowThreeUsualLinesByTheSettingOfEachMethodWithTheMostTokensARun) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild"), FakeSuite::run("assisted")};
  suite.options.run[0].lists[&DecodeOptions::fallback] = {0.5, 0.7};
  TracingEngine engine;
  engine.seconds = [](const Setting& setting, int64_t) {  // the slower one, whatever the machine's load
    return setting.decode.fallback == 0.7 ? 0.06 : setting.decode.drafts() ? 0.05 : 0.1;
  };
  const Results results = suite.evaluate(engine).results;
  const auto& examples = results.tasks.front().examples;
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(examples[0].line, 2);  // the lines before it have fewer than 8 words
  EXPECT_EQ(examples[0].source, "8");
  EXPECT_THAT(examples[0].reference, testing::StartsWith("w10 w11"));
  ASSERT_EQ(examples[0].outputs.size(), 2u);
  EXPECT_THAT(examples[0].outputs[0].setting, testing::HasSubstr("FB0.7"));
  EXPECT_THAT(examples[0].outputs[1].setting, testing::StartsWith("assisted"));
  EXPECT_EQ(engine.traced.size(), 6u);
}

TEST(Examples, TextsAreWhatTokensAdd) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  TracingEngine engine;
  const Results results = suite.evaluate(engine).results;
  EXPECT_THAT(origins_and_texts(results.tasks.front().examples.front().outputs.front()),
              testing::ElementsAre("drafted:w10", "drafted: w11", "rejected: w98", "target: w12"));
  const std::string page = report_html(results);
  EXPECT_THAT(page, testing::HasSubstr("<span class=\"rejected\" title=\"drafted and taken back\"> w98</span>"));
}

TEST(Examples, AreLeftOutWithoutTraces) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  FakeEngine engine;
  EXPECT_TRUE(suite.evaluate(engine).results.tasks.front().examples.empty());
}

// A drafter for the target, which decodes with its own first layers as well.
MeasuredTask task_with_a_model_that_also_drafts() {
  MeasuredTask measured;
  measured.drafted_for = {{"small", "target"}, {"small/exit2", "small"}, {"tiny", "target"}};
  measured.predicted["small"] = {0.7, 0.6, 9, {0.8, 1.25}, {0.5, 2.5}};
  measured.predicted["small/exit2"] = {0.6, 0.5, 9, {0.5, 2.5}, {0.4, 3.5}};
  measured.predicted["tiny"] = {0.3, 0.2, 9, {0.8, 1.25}, {0.1, 4.5}};
  return measured;
}

TEST(DrafterSummary, AModelThatDecodesAndDraftsStandsOnce) {
  const TaskPrediction prediction = task_prediction(task_with_a_model_that_also_drafts());
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
