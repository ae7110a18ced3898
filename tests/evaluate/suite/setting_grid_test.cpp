// The parts of an evaluation: grids, records, speeds, choices, predictions.

#include "evaluate/suite/setting_grid.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluate/measure/measurement_store.h"
#include "evaluate/suite/tasks.h"
#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const std::vector<Setting>& runs) {
  std::vector<std::string> result;
  for (const auto& run : runs) result.push_back(run.label);
  return result;
}

TEST(EvaluationRuns, ListsSpanAGridAndBaselinesComeFirst) {
  SuiteOptions options;
  SettingGrid bild;
  bild.decode.method = "bild";
  bild.drafter = {"a", "b"};
  bild.lists[&DecodeOptions::fallback] = {0.5, 0.9};
  bild.lists[&DecodeOptions::rollback] = {2};
  SettingGrid sampled;
  sampled.decode.method = "speculative";
  sampled.drafter = {"a"};
  sampled.lists[&DecodeOptions::temperature] = {0, 0.7};
  sampled.lists[&DecodeOptions::window] = {4};
  options.run = {bild, sampled};
  EXPECT_THAT(labels(expand_settings(options)),
              ElementsAre("greedy", "bild.a.FB0.5.RB2", "bild.a.FB0.9.RB2", "bild.b.FB0.5.RB2", "bild.b.FB0.9.RB2",
                          "speculative.a.T0.G4", "sample.T0.7", "speculative.a.T0.7.G4"));
}

// Each batch size has a baseline of its own; the suite's own size is no part of names.
TEST(EvaluationRuns, BatchSizesSpanAGridWithBaselinesOfTheSameSize) {
  SuiteOptions options;
  options.batch_size = 4;
  SettingGrid assisted;
  assisted.decode.method = "assisted";
  assisted.drafter = {"a"};
  assisted.lists[&DecodeOptions::batch_size] = {1, 4, 16};
  SettingGrid sampled;
  sampled.decode.method = "sample";
  sampled.lists[&DecodeOptions::batch_size] = {16};
  options.run = {assisted, sampled};
  const auto settings = expand_settings(options);
  EXPECT_THAT(labels(settings), ElementsAre("greedy", "greedy.batch1", "assisted.a.batch1", "assisted.a",
                                            "greedy.batch16", "assisted.a.batch16", "sample.T1.batch16"));
  EXPECT_EQ(settings.at(2).params().at("batch_size"), 1);
  EXPECT_FALSE(settings.at(3).params().contains("batch_size"));
  for (const Setting& setting : settings) {
    EXPECT_EQ(baseline_of(setting).decode.batch_size, setting.decode.batch_size) << setting.label;
    EXPECT_EQ(greedy_of(setting).decode.batch_size, setting.decode.batch_size) << setting.label;
  }
  EXPECT_NE(settings.at(2).group, settings.at(3).group);
}

TEST(EvaluationRuns, BeamSearchesHaveTheirParametersInTheirNames) {
  SuiteOptions options;
  SettingGrid plain;
  plain.decode.method = "beam";
  SettingGrid grid = plain;
  grid.lists[&DecodeOptions::num_beams] = {2, 8};
  grid.lists[&DecodeOptions::length_penalty] = {0.6, 1};
  options.run = {plain, grid};
  const auto settings = expand_settings(options);
  EXPECT_THAT(labels(settings), ElementsAre("greedy", "beam.beams4", "beam.beams2.LP0.6", "beam.beams2",
                                            "beam.beams8.LP0.6", "beam.beams8"));
  for (const Setting& setting : settings) EXPECT_FALSE(setting.lossless());
  EXPECT_EQ(baseline_of(settings.at(1)).label, "greedy");
}

TEST(EvaluationRuns, ANamedSingleSettingKeepsItsName) {
  SuiteOptions options;
  SettingGrid run;
  run.name = "no rollback";
  run.decode.method = "bild";
  run.drafter = {"a"};
  run.lists[&DecodeOptions::rollback] = {std::numeric_limits<double>::infinity()};
  options.run = {run};
  const auto runs = expand_settings(options);
  EXPECT_EQ(runs.at(1).label, "no_rollback");
  EXPECT_EQ(runs.at(1).params().at("rollback"), "inf");
}

TEST(EvaluationRuns, AskingForGreedyByNameAddsNothing) {
  SuiteOptions options;
  options.run.emplace_back().decode.method = "greedy";
  EXPECT_THAT(labels(expand_settings(options)), ElementsAre("greedy"));
}

TEST(EvaluationRuns, ProcessorsAndStopStringsAreTheBaselinesToo) {
  SuiteOptions options;
  SettingGrid run;
  run.decode.method = "assisted";
  run.drafter = {"a"};
  run.lists[&DecodeOptions::repetition_penalty] = {1, 1.2};
  options.run = {run};
  EXPECT_THAT(labels(expand_settings(options)),
              ElementsAre("greedy", "greedy.repetition_penalty1", "assisted.a.repetition_penalty1",
                          "greedy.repetition_penalty1.2", "assisted.a.repetition_penalty1.2"));
  run.lists[&DecodeOptions::repetition_penalty] = {};
  run.decode.stop_strings = {"!"};
  options.run = {run};
  run.decode.stop_strings = {"?"};
  options.run.push_back(run);
  const auto settings = expand_settings(options);
  ASSERT_EQ(settings.size(), 5U);
  EXPECT_EQ(settings[1].decode.stop_strings, std::vector<std::string>{"!"});
  EXPECT_EQ(settings[3].decode.stop_strings, std::vector<std::string>{"?"});
  EXPECT_NE(settings[1].label, settings[3].label);
  EXPECT_EQ(baseline_of(settings[4]).label, settings[3].label);
  EXPECT_EQ(greedy_of(settings[4]).label, settings[3].label);
}

TEST(EvaluationRuns, SampledRunsOfOneMinimumShareABaseline) {
  SuiteOptions options;
  SettingGrid run;
  run.decode.method = "speculative";
  run.drafter = {"a"};
  run.lists[&DecodeOptions::min_p] = {0, 0.1};
  options.run = {run};
  EXPECT_THAT(labels(expand_settings(options)), ElementsAre("greedy", "sample.T1", "speculative.a.T1",
                                                            "sample.T1.min_p0.1", "speculative.a.T1.min_p0.1"));
}

TEST(EvaluationRuns, ADrafterMayDecodeAlone) {
  SuiteOptions options;
  SettingGrid run;
  run.decode.method = "greedy";
  run.model = "small";
  options.run = {run};
  EXPECT_THAT(labels(expand_settings(options)), ElementsAre("greedy", "greedy.small"));
}

TEST(EvaluationRuns, EqualNamesAreAnError) {
  SuiteOptions options;
  SettingGrid run;
  run.decode.method = "assisted";
  run.drafter = {"a", "a"};
  options.run = {run};
  EXPECT_THROW(expand_settings(options), UserError);
}

TEST(EvaluationPrediction, EqualsThePublishedSpeedsAtZeroCost) {
  // methods.md §1: (alpha, G, speed) with c = 0.
  EXPECT_NEAR(expected_tokens(0.6, 2), 1.96, 0.005);
  EXPECT_NEAR(expected_tokens(0.8, 5), 3.69, 0.005);
  EXPECT_NEAR(expected_tokens(0.9, 10), 6.86, 0.005);
  EXPECT_DOUBLE_EQ(expected_tokens(1, 4), 5);
}

TEST(EvaluationPrediction, UsesTheMeasuredVerificationCurve) {
  Setting run;
  run.decode.method = "speculative";
  run.decode.window = 3;
  infer::DecodeStats stats;
  stats.emitted = 30;
  stats.target_runs = 10;
  stats.target_tokens = 40;
  stats.draft_runs = 30;
  stats.drafted = 30;
  stats.overlap_sum = 15;
  stats.overlap_count = 30;
  const infer::StepCosts costs{{0.010, 0.012, 0.014, 0.020}, 0.001};
  const auto prediction = predict(run, stats, costs);
  EXPECT_DOUBLE_EQ(prediction->cost_ratio, 0.1);
  EXPECT_DOUBLE_EQ(prediction->speedup.value(), (1 - 0.0625) / 0.5 / (0.3 + 2));
  EXPECT_DOUBLE_EQ(prediction->speedup_from_counts, 30 / (3 + 10 * 2.0));
  EXPECT_DOUBLE_EQ(costs.relative_target(1.5), 1.1);
  EXPECT_DOUBLE_EQ(costs.relative_target(5), 2.6);

  // A draft's first step is dearer, after the target's: three take 5 ms here.
  const infer::StepCosts rounds{costs.target, 0.001, {0.002, 0.004, 0.005}};
  EXPECT_DOUBLE_EQ(predict(run, stats, rounds)->cost_ratio, 0.1);
  EXPECT_DOUBLE_EQ(predict(run, stats, rounds)->speedup.value(), (1 - 0.0625) / 0.5 / (0.5 + 2));
  EXPECT_DOUBLE_EQ(predict(run, stats, rounds)->speedup_from_counts, 30 / (10 * (0.5 + 2.0)));
}

TEST(EvaluationPrediction, OnlyWindowsOfConstantLengthHaveALatency) {
  Setting run;
  infer::DecodeStats stats;
  stats.emitted = stats.target_tokens = 30;
  stats.target_runs = 10;
  stats.draft_runs = stats.drafted = stats.overlap_count = 30;
  stats.overlap_sum = 15;
  const infer::StepCosts costs{{0.01, 0.01, 0.01, 0.01, 0.01, 0.01}, 0.001};
  for (const auto& [method, rule, constant] :
       {std::tuple{"speculative", "", true}, std::tuple{"bild", "fixed", true}, std::tuple{"bild", "", false},
        std::tuple{"assisted", "", false}, std::tuple{"greedy", "", false}}) {
    run.decode.method = method;
    run.decode.window_rule = rule;
    EXPECT_EQ(predict(run, stats, costs)->latency.has_value(), constant) << method << " " << rule;
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
