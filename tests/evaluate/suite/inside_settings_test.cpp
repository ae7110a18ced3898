// Methods inside the model in an evaluation: names of settings, bounds, and what is summed up.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/measure/measurement_store.h"
#include "evaluate/results/summary.h"
#include "evaluate/suite/setting_grid.h"

namespace draftsmith::evaluate {
namespace {

using testing::ElementsAre;

SettingGrid run_of(const std::string& method, const std::string& model = "target") {
  SettingGrid run;
  run.decode.method = method;
  run.model = model;
  return run;
}

std::vector<std::string> labels(const SettingGrid& run) {
  SuiteOptions options;
  options.run = {run};
  std::vector<std::string> result;
  for (const auto& one : expand_settings(options)) result.push_back(one.label);
  return result;
}

std::set<std::string> groups(const SettingGrid& run) {
  std::set<std::string> result;
  for (const auto& one : expand_grid(run)) result.insert(one.group);
  return result;
}

TEST(InsideRuns, SettingsAreNamedByWhatTheyDecodeWith) {
  SettingGrid exit = run_of("early-exit");
  exit.lists[&DecodeOptions::exit_layer] = {1, 2};
  exit.lists[&DecodeOptions::fallback] = {0.4};
  exit.lists[&DecodeOptions::rollback] = {1.5};
  EXPECT_THAT(labels(exit), ElementsAre("greedy", "early-exit.FB0.4.RB1.5.exit1", "early-exit.FB0.4.RB1.5.exit2"));
  SettingGrid calm = run_of("calm");
  calm.lists[&DecodeOptions::exit_measure] = {"margin"};
  calm.lists[&DecodeOptions::exit_threshold] = {0.9, 1};
  EXPECT_THAT(labels(calm), ElementsAre("greedy", "calm.margin.lambda0.9.temp4", "calm.margin.lambda1.temp4"));
  SettingGrid ppd = run_of("ppd");
  ppd.lists[&DecodeOptions::candidates] = {1, 3};
  EXPECT_THAT(labels(ppd), ElementsAre("greedy", "ppd.k1", "ppd.k3"));
}

TEST(InsideRuns, AnotherModelBringsItsOwnGreedyDecoding) {
  EXPECT_THAT(labels(run_of("calm", "other")),
              ElementsAre("greedy", "greedy.other", "calm.other.saturation.lambda0.9.temp4"));
  SuiteOptions options;
  options.run = {run_of("ppd", "other"), run_of("greedy", "other")};  // asked for by name as well
  EXPECT_EQ(expand_settings(options).size(), 3U);
}

TEST(InsideRuns, MeasuresAndExitsAreComparedThresholdsChosenAmong) {
  SettingGrid calm = run_of("calm");
  calm.lists[&DecodeOptions::exit_measure] = {"margin", "saturation"};
  calm.lists[&DecodeOptions::exit_threshold] = {0.8, 0.9};
  calm.lists[&DecodeOptions::exit_decay] = {0, 4};
  EXPECT_EQ(groups(calm), (std::set<std::string>{"calm.margin", "calm.saturation"}));
  SettingGrid exit = run_of("early-exit");
  exit.lists[&DecodeOptions::exit_layer] = {1, 2};
  exit.lists[&DecodeOptions::fallback] = {0.4, 0.6};
  EXPECT_EQ(groups(exit), (std::set<std::string>{"early-exit.exit1", "early-exit.exit2"}));
  exit.decode.acceptance = "exact";
  EXPECT_EQ(groups(exit), (std::set<std::string>{"early-exit.exit1.exact", "early-exit.exit2.exact"}));
}

TEST(InsideRuns, PpdAndExactDraftingAreLosslessForTheirOwnModel) {
  const auto first = [](const SettingGrid& run) { return expand_grid(run).front(); };
  EXPECT_TRUE(first(run_of("ppd")).equals_greedy());
  EXPECT_TRUE(first(run_of("ppd", "other")).lossless());
  EXPECT_FALSE(first(run_of("ppd", "other")).equals_greedy());
  SettingGrid sampled = run_of("ppd");
  sampled.lists[&DecodeOptions::temperature] = {0.7};
  EXPECT_TRUE(first(sampled).samples_exactly());
  EXPECT_FALSE(first(sampled).lossless());
  EXPECT_THAT(labels(sampled), ElementsAre("greedy", "sample.T0.7", "ppd.T0.7.k3"));
  sampled.decode.method = "calm";
  EXPECT_FALSE(first(sampled).samples_exactly());
  EXPECT_FALSE(first(run_of("calm")).lossless());
  EXPECT_FALSE(first(run_of("early-exit")).lossless());
  SettingGrid exact = run_of("early-exit");
  exact.decode.acceptance = "exact";
  EXPECT_TRUE(first(exact).equals_greedy());
  EXPECT_EQ(first(exact).drafter_label(), "exit");
  exact.model = "other";
  exact.lists[&DecodeOptions::exit_layer] = {2};
  EXPECT_EQ(first(exact).drafter_label(), "other/exit2");
  EXPECT_EQ(first(run_of("calm")).drafter_label(), "");
}

SettingRecords records(int64_t tokens, int64_t target_runs, int64_t draft_runs, int64_t latency_units = 0) {
  LineRecord record;
  record.stats.emitted = tokens;
  record.stats.target_runs = target_runs;
  record.stats.draft_runs = draft_runs;
  record.stats.latency_units = latency_units;
  record.repetitions.resize(1);
  return {record};
}

TEST(InsideRecords, SpeedIsBoundedByLayersOneAfterTheOther) {
  const SettingRecords plain = records(12, 12, 0);
  // Four rounds of two drafts by two of six layers: 4 * (3 * 2 + 4) layers for 12 tokens, where greedy takes 72.
  EXPECT_DOUBLE_EQ(decode_bound(records(12, 4, 8, 40), plain, {6, 2}), 72.0 / 40);
  // Rounds that drafted nothing ran all six.
  EXPECT_DOUBLE_EQ(decode_bound(records(12, 12, 0, 72), plain, {6, 2}), 1);
  EXPECT_DOUBLE_EQ(decode_bound(records(12, 12, 0, 48), plain, {6, 4}), 72.0 / 48);
  EXPECT_DOUBLE_EQ(decode_bound(records(12, 4, 8), plain), 3);
  // Nothing counted bounds nothing.
  EXPECT_EQ(decode_bound(records(12, 0, 0), plain, {6, 2}), 0);
  EXPECT_EQ(decode_bound(records(12, 0, 0), plain), 0);
}

TEST(InsideSummary, PpdStandsBesideTheTheorem) {
  Setting run = expand_grid(run_of("ppd")).front();
  infer::DecodeStats stats;
  stats.emitted = 100;
  stats.layer_runs = 900;
  stats.early_predictions = 90;  // ten outputs
  stats.early_matches = 45;
  stats.latency_units = 510;
  stats.compute_units = 1400;
  const auto inside = inside_result(run, {6, 4}, stats, 10).value();
  EXPECT_DOUBLE_EQ(inside.match_rate.value(), 0.5);
  EXPECT_DOUBLE_EQ(inside.path_per_token, 5.1);
  EXPECT_DOUBLE_EQ(inside.theorem->speedup, 6 / 5.1);
  EXPECT_DOUBLE_EQ(inside.units_in_use.value(), 1400.0 / 510);
}

TEST(InsideSummary, WithoutLayersThatDraftThereIsNothingToSay) {
  infer::DecodeStats stats;
  stats.emitted = 10;
  stats.layer_runs = 60;
  Setting assisted;
  assisted.decode.method = "assisted";
  assisted.drafter = "small";
  EXPECT_FALSE(inside_result(assisted, {6, 0}, stats, 1).has_value());
  EXPECT_TRUE(inside_result(assisted, {6, 2}, stats, 1).has_value());
}

}  // namespace
}  // namespace draftsmith::evaluate
