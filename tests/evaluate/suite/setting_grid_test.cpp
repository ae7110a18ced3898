// Grids of settings: their names, their baselines, what they promise, and what theory predicts of them.
#include "evaluate/suite/setting_grid.h"

#include <set>
#include <tuple>

#include <gmock/gmock.h>

#include "base/error.h"
#include "evaluate/results/summary.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

std::vector<std::string> labels(const std::vector<Setting>& settings) {
  std::vector<std::string> result;
  for (const Setting& setting : settings) result.push_back(setting.label);
  return result;
}

// Returns the settings of grids beside greedy decoding.
std::vector<Setting> settings_of(std::vector<SettingGrid> runs, int64_t batch_size = 1) {
  SuiteOptions options;
  options.batch_size = batch_size;
  options.run = std::move(runs);
  return expand_settings(options);
}

std::vector<std::string> labels(const SettingGrid& run) {
  return labels(settings_of({run}));
}

SettingGrid run_of(const std::string& method, const std::string& model = "target") {
  SettingGrid run;
  run.decode.method = method;
  run.model = model;
  return run;
}

SettingGrid drafted_by_a(const std::string& method) {
  SettingGrid run = run_of(method);
  run.drafter = {"a"};
  return run;
}

TEST(EvaluationRuns, ListsSpanAGridAndBaselinesComeFirst) {
  SettingGrid bild = run_of("bild");
  bild.drafter = {"a", "b"};
  bild.lists[&DecodeOptions::fallback] = {0.5, 0.9};
  bild.lists[&DecodeOptions::rollback] = {2};
  SettingGrid sampled = drafted_by_a("speculative");
  sampled.lists[&DecodeOptions::temperature] = {0, 0.7};
  sampled.lists[&DecodeOptions::window] = {4};
  EXPECT_THAT(labels(settings_of({bild, sampled})),
              ElementsAre("greedy", "bild.a.FB0.5.RB2", "bild.a.FB0.9.RB2", "bild.b.FB0.5.RB2", "bild.b.FB0.9.RB2",
                          "speculative.a.T0.G4", "sample.T0.7", "speculative.a.T0.7.G4"));
}

// Each batch size has a baseline of its own; the suite's own size is no part of names.
TEST(EvaluationRuns, BatchSizesSpanAGridWithBaselinesOfTheSameSize) {
  SettingGrid assisted = drafted_by_a("assisted");
  assisted.lists[&DecodeOptions::batch_size] = {1, 4, 16};
  SettingGrid sampled = run_of("sample");
  sampled.lists[&DecodeOptions::batch_size] = {16};
  const auto settings = settings_of({assisted, sampled}, 4);
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

TEST(EvaluationRuns, ANamedSingleSettingKeepsItsName) {
  SettingGrid run = drafted_by_a("bild");
  run.name = "no rollback";
  run.lists[&DecodeOptions::rollback] = {std::numeric_limits<double>::infinity()};
  const auto runs = settings_of({run});
  EXPECT_EQ(runs.at(1).label, "no_rollback");
  EXPECT_EQ(runs.at(1).params().at("rollback"), "inf");
}

TEST(EvaluationRuns, ProcessorsAndStopStringsAreTheBaselinesToo) {
  SettingGrid run = drafted_by_a("assisted");
  run.lists[&DecodeOptions::repetition_penalty] = {1, 1.2};
  EXPECT_THAT(labels(run), ElementsAre("greedy", "greedy.repetition_penalty1", "assisted.a.repetition_penalty1",
                                       "greedy.repetition_penalty1.2", "assisted.a.repetition_penalty1.2"));
  run.lists[&DecodeOptions::repetition_penalty] = {};
  run.decode.stop_strings = {"!"};
  SettingGrid other = run;
  other.decode.stop_strings = {"?"};
  const auto settings = settings_of({run, other});
  ASSERT_EQ(settings.size(), 5U);
  EXPECT_EQ(settings[1].decode.stop_strings, std::vector<std::string>{"!"});
  EXPECT_EQ(settings[3].decode.stop_strings, std::vector<std::string>{"?"});
  EXPECT_NE(settings[1].label, settings[3].label);
  EXPECT_EQ(baseline_of(settings[4]).label, settings[3].label);
  EXPECT_EQ(greedy_of(settings[4]).label, settings[3].label);
}

TEST(EvaluationRuns, EqualNamesAreAnError) {
  SettingGrid run = run_of("assisted");
  run.drafter = {"a", "a"};
  EXPECT_THROW(settings_of({run}), UserError);
}

TEST(EvaluationPrediction, UsesTheMeasuredVerificationCurve) {
  Setting run;
  run.decode.method = "speculative";
  run.decode.window = 3;
  infer::DecodeStats stats{.emitted = 30, .target_runs = 10, .drafted = 30, .overlap_sum = 15};
  stats.draft_steps.logits = 30;
  stats.target_tokens = 40;
  stats.overlap_count = 30;
  const infer::StepCosts costs{{0.010, 0.012, 0.014, 0.020}, 0.001};
  const auto predicted = [&](const infer::StepCosts& steps) { return predicted_speed(run, stats, 0, steps).value(); };
  const auto accounted = [&](const infer::StepCosts& steps) { return accounted_speed(stats, steps, NAN).value(); };
  EXPECT_DOUBLE_EQ(predicted(costs).speedup, (1 - 0.0625) / 0.5 / (0.3 + 2));
  const double ends = predicted_speed(run, stats, 15, costs).value().speedup;  // after two tokens, in 1.5 runs
  EXPECT_DOUBLE_EQ(ends, 2 / 1.5 / (0.3 + 2));
  EXPECT_DOUBLE_EQ(accounted(costs).speedup, 30 / (3 + 10 * 2.0));
  EXPECT_DOUBLE_EQ(accounted_speed(stats, costs, 0.008)->speedup, 0.8 * 30 / (3 + 10 * 2.0));
  EXPECT_DOUBLE_EQ(costs.relative_target(1.5), 1.1);
  EXPECT_DOUBLE_EQ(costs.relative_target(5), 2.6);

  // A draft's first step is dearer, after the target's: three take 5 ms here.
  const infer::StepCosts rounds{costs.target, 0.001, {0.002, 0.004, 0.005}};
  EXPECT_DOUBLE_EQ(predicted(rounds).speedup, (1 - 0.0625) / 0.5 / (0.5 + 2));
  EXPECT_DOUBLE_EQ(accounted(rounds).speedup, 30 / (10 * (0.5 + 2.0)));
}

TEST(EvaluationPrediction, IsOfLosslessWindowsOfConstantLengthAlone) {
  Setting run;
  infer::DecodeStats stats;
  stats.emitted = stats.target_tokens = 30;
  stats.target_runs = 10;
  stats.draft_runs = stats.drafted = stats.overlap_count = 30;
  stats.overlap_sum = 15;
  const infer::StepCosts costs{{0.01, 0.01, 0.01, 0.01, 0.01, 0.01}, 0.001};
  for (const auto& [method, rule, constant] :
       {std::tuple{"speculative", "", true}, std::tuple{"bild", "fixed", false}, std::tuple{"bild", "", false},
        std::tuple{"assisted", "", false}, std::tuple{"greedy", "", false}}) {
    run.decode.method = method;
    run.decode.window_rule = rule;
    EXPECT_EQ(predicted_speed(run, stats, 3, costs).has_value(), constant) << method << " " << rule;
  }
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
  EXPECT_EQ(settings_of({run_of("ppd", "other"), run_of("greedy", "other")}).size(), 3U) << "asked for by name as well";
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
  EXPECT_EQ(groups(exit), (std::set<std::string>{"early-exit.exact.exit1", "early-exit.exact.exit2"}));
}

TEST(InsideRuns, PpdAndExactDraftingAreLosslessForTheirOwnModel) {
  const auto first = [](const SettingGrid& run) { return expand_grid(run).front(); };
  EXPECT_TRUE(first(run_of("ppd")).follows_target());
  EXPECT_TRUE(first(run_of("ppd", "other")).lossless());
  EXPECT_FALSE(first(run_of("ppd", "other")).follows_target());
  SettingGrid sampled = run_of("ppd");
  sampled.lists[&DecodeOptions::temperature] = {0.7};
  EXPECT_TRUE(first(sampled).samples_exactly());
  EXPECT_FALSE(first(sampled).lossless());
  EXPECT_EQ(first(sampled).decode.top_k, 0) << "the model's own would differ from what it is compared with";
  EXPECT_THAT(labels(sampled), ElementsAre("greedy", "sample.T0.7", "ppd.T0.7.k3"));
  sampled.decode.method = "calm";
  EXPECT_FALSE(first(sampled).samples_exactly());
  EXPECT_FALSE(first(run_of("calm")).lossless());
  EXPECT_FALSE(first(run_of("early-exit")).lossless());
  SettingGrid exact = run_of("early-exit");
  exact.decode.acceptance = "exact";
  EXPECT_TRUE(first(exact).follows_target());
  EXPECT_EQ(first(exact).drafter_label(), "exit");
  exact.model = "other";
  exact.lists[&DecodeOptions::exit_layer] = {2};
  EXPECT_EQ(first(exact).drafter_label(), "other/exit2");
  EXPECT_EQ(first(run_of("calm")).drafter_label(), "");
}

TEST(InsideSummary, PpdStandsBesideTheTheorem) {
  Setting run = expand_grid(run_of("ppd")).front();
  infer::DecodeStats stats{.emitted = 100, .layer_runs = 900};
  stats.early_predictions = 90;  // ten outputs
  stats.early_matches = 45;
  stats.latency_units = 510;
  stats.compute_units = 1400;
  const auto inside = inside_result(run, {6, 4}, stats, 10).value();
  EXPECT_DOUBLE_EQ(inside.match_rate.value(), 0.5);
  EXPECT_DOUBLE_EQ(inside.path_per_token, 5.1);
  EXPECT_DOUBLE_EQ(inside.theorem_speedup.value(), 6 / 5.1);
  EXPECT_DOUBLE_EQ(inside.units_in_use.value(), 1400.0 / 510);
}

}  // namespace
}  // namespace draftsmith::evaluate
