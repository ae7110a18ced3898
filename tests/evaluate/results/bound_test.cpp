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

}  // namespace
}  // namespace draftsmith::evaluate
