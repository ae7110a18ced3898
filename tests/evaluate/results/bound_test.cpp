// What bounds the measured speed of a suite's runs, and when nothing does.
#include <gtest/gtest.h>

#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

TEST(EvaluationBound, WithoutTargetRunsThereIsNone) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine;
  engine.tokens_per_run = 100;
  const auto run = to_json(suite.evaluate(engine).results).at("tasks").at(0).at("runs").at(1);
  EXPECT_EQ(run.at("acceptance").at("target_runs"), 0);
  EXPECT_FALSE(run.at("speed").contains("speedup_decode_bound"));
  EXPECT_FALSE(run.contains("measurement_error"));
}

// An engine of a decoder of six layers, of which `ran` run for a token.
class LayeredEngine : public FakeEngine {
 public:
  int64_t ran = 3;
  LayerDepth depth(const Setting&) override { return {6, 0}; }
  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    auto records = FakeEngine::decode(run, batch);
    for (LineRecord& record : records) record.stats.layer_runs = record.stats.emitted * ran;
    return records;
  }
};

SuiteResult calm_suite(double seconds) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("calm")};
  suite.options.run[0].drafter.clear();
  LayeredEngine engine;
  engine.seconds = [=](const Setting& run, int64_t) { return run.method() == "calm" ? seconds : 0.1; };
  return suite.evaluate(engine);
}

TEST(EvaluationBound, CalmIsBoundedByTheLayersThatRan) {
  const SuiteResult possible = calm_suite(0.06);
  EXPECT_TRUE(possible.failures.empty());
  const auto run = to_json(possible.results).at("tasks").at(0).at("runs").at(1);
  EXPECT_DOUBLE_EQ(run.at("speed").at("speedup_decode_bound"), 2);
  EXPECT_EQ(calm_suite(0.04).failures.size(), 1U);  // 2.5 times as fast
}

TEST(EvaluationBound, ADrafterAloneIsBoundedByTheRunsOfTheTarget) {
  FakeSuite suite;
  suite.options.drafter = {{.name = "small", .tandem = suite.directory.path()}};
  suite.options.run = {FakeSuite::run("tandem")};
  FakeEngine engine;
  engine.tokens_per_run = 2;
  engine.seconds = [](const Setting& run, int64_t) { return run.decode.drafts() ? 0.02 : 0.1; };
  EXPECT_EQ(suite.evaluate(engine).failures.size(), 1U);
  suite.options.run[0].decode.free_token = false;  // then runs of the target lack their head
  EXPECT_TRUE(suite.evaluate(engine).failures.empty());
}

}  // namespace
}  // namespace draftsmith::evaluate
