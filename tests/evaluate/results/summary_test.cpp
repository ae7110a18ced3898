// Outputs of some lines by their tokens' origins.
#include "evaluate/results/examples.h"

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

TEST(Examples, ComeBackFromTheirJson) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  TracingEngine engine;
  const auto json = to_json(suite.evaluate(engine).results);
  EXPECT_EQ(json.at("tasks").at(0).at("examples").size(), 3u);
  EXPECT_EQ(to_json(read_results(json)).dump(), json.dump());
}

TEST(Examples, AreLeftOutWithoutTraces) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  FakeEngine engine;
  EXPECT_FALSE(to_json(suite.evaluate(engine).results).at("tasks").at(0).contains("examples"));
}

}  // namespace
}  // namespace draftsmith::evaluate
