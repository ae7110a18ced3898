// Checks of lossless settings in suites: planted defects fail the suite, rounding does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns the text in one line, since notes are wrapped.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::string line;
  for (const char c : text) {
    if (c != ' ' || !line.ends_with(' ')) line += c;
  }
  return line;
}

nlohmann::ordered_json first_run(const SuiteResult& result) {
  return to_json(result.results).at("tasks").at(0).at("runs").at(1);  // after the baseline's repetition
}

// An engine whose assisted setting gets the first word of two lines wrong.
FakeEngine wrong_engine(int64_t wrong_word) {
  FakeEngine engine;
  engine.wrong_word = wrong_word;
  engine.errors = [](const Setting& run, int64_t line) { return run.method() == "assisted" && line % 16 == 3 ? 1 : 0; };
  return engine;
}

TEST(LosslessCheck, AnotherTokenThanTheTwoMostLikelyFailsTheSuite) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine = wrong_engine(99);
  const SuiteResult result = suite.evaluate(engine);
  const auto run = first_run(result);
  EXPECT_EQ(run.at("lossless_check"), false);
  const auto& exactness = run.at("exactness");
  EXPECT_EQ(exactness.at("differing_lines"), 2);
  EXPECT_EQ(exactness.at("unexplained_lines"), 2);
  EXPECT_EQ(exactness.at("explained_by_rounding"), false);
  EXPECT_DOUBLE_EQ(exactness.at("largest_margin"), 5);
  EXPECT_EQ(exactness.at("first_unexplained").at("line"), 3);
  EXPECT_EQ(exactness.at("first_unexplained").at("position"), 0);
  EXPECT_EQ(exactness.at("first_unexplained").at("token"), 99);
  EXPECT_EQ(exactness.at("first_unexplained").at("greedy_token"), 10);
  ASSERT_EQ(result.failures.size(), 1U);
  try {
    throw_if_failed(result);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_EQ(error.exit_code(), 1);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("assisted.small"), HasSubstr("2 of 24 lines"), HasSubstr("token 99"),
                                    HasSubstr("line 4 ")));
  }
  // Results are written, and every form of them has the verdict.
  const auto out = suite.directory / "out";
  EXPECT_EQ(load_json(out / "results.json").at("tasks").at(0).at("runs").at(1).at("lossless_check"), false);
  const std::string markdown = report_markdown(result.results);
  for (const std::string& text : {result.table, read_file(out / "report.html"), markdown}) {
    EXPECT_THAT(one_line(text), HasSubstr("Lossless check FAILED: 1 of 1 settings: assisted.small"));
    EXPECT_THAT(one_line(text),
                HasSubstr("more than rounding explains (first on line 4 behind 0 new tokens: 99 for 10)"));
  }
  EXPECT_THAT(read_file(out / "report.html"), HasSubstr("<p class=\"error\">! Lossless check FAILED"));
  EXPECT_THAT(read_file(out / "results.csv"), AllOf(HasSubstr("lossless_check"), HasSubstr(",failed,")));
}

TEST(LosslessCheck, AFailedSuiteIsNotMeasuredAgain) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine first = wrong_engine(99);
  suite.evaluate(first);
  FakeEngine second = wrong_engine(99);
  EXPECT_EQ(suite.evaluate(second).failures.size(), 1U);
  EXPECT_TRUE(second.counted.empty());
}

TEST(LosslessCheck, RoundingMayTurnTheTwoMostLikelyTokensRound) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine = wrong_engine(98);  // 1e-5 below the first; the tolerance is 8 * 4e-6
  const SuiteResult result = suite.evaluate(engine);
  EXPECT_TRUE(result.failures.empty());
  EXPECT_NO_THROW(throw_if_failed(result));
  const auto run = first_run(result);
  EXPECT_EQ(run.at("lossless_check"), true);
  EXPECT_EQ(run.at("exactness").at("explained_by_rounding"), true);
  EXPECT_EQ(run.at("exactness").at("unexplained_lines"), 0);
  EXPECT_DOUBLE_EQ(run.at("exactness").at("tolerance"), 3.2e-5);
  EXPECT_DOUBLE_EQ(run.at("exactness").at("largest_margin"), 1e-5);
  EXPECT_FALSE(run.at("exactness").contains("first_unexplained"));
  EXPECT_EQ(engine.rounded_lines, 2);
  EXPECT_THAT(result.table, HasSubstr("Lossless check passed: 1 greedy settings"));
}

TEST(LosslessCheck, AMarginBeyondTheMeasuredRoundingFails) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine = wrong_engine(98);
  engine.rounding = 1e-6;  // 8e-6 do not explain 1e-5
  const SuiteResult result = suite.evaluate(engine);
  EXPECT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(first_run(result).at("exactness").at("explained_by_rounding"), false);
}

TEST(LosslessCheck, LogitsThatAreNoNumbersExplainNothing) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine = wrong_engine(98);
  engine.gap = [](const Setting&, const TextStart&, int64_t) { return NAN; };
  EXPECT_EQ(suite.evaluate(engine).failures.size(), 1U);
}

// An engine whose outputs of one setting end a word too early.
class ShortEngine : public FakeEngine {
 public:
  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    auto records = FakeEngine::decode(run, batch);
    if (run.method() == "assisted" && batch.first_line == 5) records.front().ids.pop_back();
    return records;
  }
};

TEST(LosslessCheck, AnOutputThatEndsTooEarlyFails) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  ShortEngine engine;
  const SuiteResult result = suite.evaluate(engine);
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_THAT(result.failures.front().found, HasSubstr("no token"));
  // An infinite margin is null in the file, which is read again.
  EXPECT_EQ(to_json(load_results(suite.directory / "out/results.json")), to_json(result.results));
}

TEST(LosslessCheck, MethodsThatPromiseNothingMayDiffer) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("bild")};
  FakeEngine engine;
  engine.errors = [](const Setting& run, int64_t) { return run.method() == "bild" ? 2 : 0; };
  const SuiteResult result = suite.evaluate(engine);
  EXPECT_TRUE(result.failures.empty());
  EXPECT_FALSE(first_run(result).contains("lossless_check"));
  EXPECT_THAT(result.table, testing::Not(HasSubstr("Lossless check")));
}

// A suite of a sampled setting with four samples of each of 24 lines, whose first tokens an engine draws from `drawn`.
SuiteResult sampled_suite(const std::function<double(int64_t token)>& drawn) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("speculative")};
  suite.options.run[0].decode.num_samples = 4;
  FakeEngine engine;
  engine.first_token = [&](const Setting& run, int64_t line, int64_t sample) {
    const CounterRandom random(7, run.label);
    double uniform = random.uniform(static_cast<uint64_t>(line * 4 + sample));
    int64_t token = 0;
    const bool lossless = run.method() == "sample";  // the baseline is always right
    const auto p = [&](int64_t id) { return lossless ? engine.distribution[static_cast<size_t>(id)] : drawn(id); };
    while (token < 3 && uniform >= p(token)) uniform -= p(token++);
    return token;
  };
  return suite.evaluate(engine);
}

TEST(LosslessCheck, SampledFirstTokensMustHaveTheTargetsDistribution) {
  const std::vector<double> right = FakeEngine().distribution;
  const SuiteResult passed = sampled_suite([&](int64_t token) { return right[static_cast<size_t>(token)]; });
  EXPECT_TRUE(passed.failures.empty());
  EXPECT_THAT(passed.table, HasSubstr("3 sampled ones (first tokens, least p = "));
  const auto runs = to_json(passed.results).at("tasks").at(0).at("runs");
  for (const auto& run : runs) {
    if (run.at("method") == "greedy") continue;
    EXPECT_EQ(run.at("lossless_check"), true) << run.at("name");
    EXPECT_EQ(run.at("first_tokens").at("tokens"), 24 * 4);
    EXPECT_GE(run.at("first_tokens").at("p_value"), 1e-6);
  }
  EXPECT_EQ(runs.size(), 4U);
}

TEST(LosslessCheck, GreedyFirstTokensOfASampledSettingFailTheSuite) {
  const SuiteResult greedy = sampled_suite([](int64_t token) { return token == 0 ? 1.0 : 0.0; });
  ASSERT_EQ(greedy.failures.size(), 1U);
  EXPECT_THAT(greedy.failures.front().where, HasSubstr("speculative.small.T1"));
  EXPECT_THAT(greedy.failures.front().what, HasSubstr("96 samples"));
  for (const std::string& text : {greedy.table, report_html(greedy.results), report_markdown(greedy.results)}) {
    EXPECT_THAT(one_line(text), HasSubstr("96 first tokens do not have the target's distribution"));
    EXPECT_THAT(one_line(text), HasSubstr("Lossless check FAILED: 1 of 3 settings: speculative.small.T1.samples4"));
  }
}

TEST(LosslessCheck, TheDraftersDistributionFailsTheSuite) {
  const std::vector<double> drafter{0.1, 0.15, 0.3, 0.45};
  const SuiteResult result = sampled_suite([&](int64_t token) { return drafter[static_cast<size_t>(token)]; });
  EXPECT_EQ(result.failures.size(), 1U);
}

}  // namespace
}  // namespace draftsmith::evaluate
