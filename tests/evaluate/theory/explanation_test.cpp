// Explanations of measured speeds, against numbers worked out by hand.
#include "evaluate/theory/explanation.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "evaluate/theory/formulas.h"

namespace draftsmith::evaluate {
namespace {

// 10 rounds of 3 drafts that emitted 25 tokens; a draft step takes 1 s, a target step 10 s, of 4 tokens 12 s.
constexpr TimedRuns kRuns{.tokens = 25, .target_runs = 10, .target_tokens = 40, .draft_runs = 30};

infer::StepCosts costs() {
  return {.target = {10, 10, 11, 12}, .draft = 1, .drafts = {}};
}

// A second of encoder, 160 s of decoding; the baseline takes 11 s of encoder and 250 s.
TimedWork own_work() {
  return {.tokens = 25,
          .seconds = {.encode = 10, .prefill = 0, .draft = 33, .verify = 122, .other = 5},
          .overhead = 2,
          .waited = 0};
}

TimedWork baseline_work() {
  return {.tokens = 25, .seconds = {.encode = 10, .prefill = 0, .draft = 0, .verify = 250, .other = 0}};
}

TEST(EffectiveAlpha, IsThatOfTheTokensARound) {
  const double alpha = effective_alpha(kRuns);
  EXPECT_NEAR(expected_tokens(alpha, 3), 2.5, 1e-9);
  EXPECT_NEAR(effective_alpha({.tokens = 40, .target_runs = 10, .target_tokens = 40, .draft_runs = 30}), 1, 1e-9);
  EXPECT_NEAR(effective_alpha({.tokens = 10, .target_runs = 10, .target_tokens = 40, .draft_runs = 30}), 0, 1e-9);
  // Half of the rounds draft 1 token and half 2: between both windows.
  const double mixed = effective_alpha({.tokens = 21, .target_runs = 10, .target_tokens = 25, .draft_runs = 15});
  EXPECT_NEAR((expected_tokens(mixed, 1) + expected_tokens(mixed, 2)) / 2, 2.1, 1e-9);
}

TEST(Improvements, ChangeOneThingEach) {
  const double speedup = 260.0 / 170;
  const Improvements better = improvements(kRuns, own_work(), baseline_work(), speedup, costs());
  // A round takes 3 + 12 s; decoding takes 160 s of 170.
  EXPECT_NEAR(better.half_draft, 260 / (10 + 160 * 13.5 / 15), 1e-9);
  EXPECT_NEAR(better.free_verification, 260 / (10 + 160 * 13.0 / 15), 1e-9);
  EXPECT_NEAR(better.no_encoder, 250.0 / 160, 1e-9);
  const double more = expected_tokens(effective_alpha(kRuns) + 0.05, 3);
  EXPECT_NEAR(better.more_alpha, 260 / (10 + 160 * 2.5 / more), 1e-9);
}

TEST(Improvements, AlphaDoesNotExceedOne) {
  const TimedRuns all{.tokens = 40, .target_runs = 10, .target_tokens = 40, .draft_runs = 30};
  EXPECT_NEAR(improvements(all, own_work(), baseline_work(), 2, costs()).more_alpha, 2, 1e-9);
}

TEST(Improvements, NeedRunsOfTheTarget) {
  EXPECT_THROW(improvements({}, own_work(), baseline_work(), 2, costs()), std::invalid_argument);
  EXPECT_THROW(speed_gap(kRuns, own_work(), {}, {}), std::invalid_argument);
}

double sum(const SpeedGap& gap) {
  return gap.acceptance.value_or(0) + gap.drafting + gap.verification + gap.cache + gap.waiting + gap.other;
}

TEST(SpeedGaps, PartsSumToTheDifferenceFromThePrediction) {
  const SpeedGap gap = speed_gap(kRuns, own_work(), costs(), 5.0);
  EXPECT_DOUBLE_EQ(gap.measured, 160.0 / 25);
  EXPECT_DOUBLE_EQ(*gap.acceptance, 150.0 / 25 - 5);
  EXPECT_NEAR(gap.drafting, (33.0 - 30) / 25, 1e-12);
  EXPECT_NEAR(gap.verification, (122.0 - 120) / 25, 1e-12);
  EXPECT_NEAR(gap.cache, 3.0 / 25, 1e-12);
  EXPECT_NEAR(gap.other, 2.0 / 25, 1e-12);
  EXPECT_EQ(gap.waiting, 0);
  EXPECT_NEAR(sum(gap), gap.measured - gap.predicted, 1e-12);
}

TEST(SpeedGaps, WaitingComesFromAllPhasesInProportion) {
  TimedWork own = own_work();
  own.waited = 17;  // a tenth
  const SpeedGap gap = speed_gap(kRuns, own, costs(), 5.0);
  EXPECT_NEAR(gap.waiting, 16.0 / 25, 1e-12);
  EXPECT_NEAR(gap.cache, 0.9 * 3 / 25, 1e-12);
  EXPECT_NEAR(sum(gap), gap.measured - gap.predicted, 1e-12);
}

TEST(SpeedGaps, WithoutAPredictionTheCountedRunsAreOne) {
  const SpeedGap gap = speed_gap(kRuns, own_work(), costs(), {});
  EXPECT_FALSE(gap.acceptance.has_value());
  EXPECT_DOUBLE_EQ(gap.predicted, 150.0 / 25);
  EXPECT_NEAR(sum(gap), gap.measured - gap.predicted, 1e-12);
}

}  // namespace
}  // namespace draftsmith::evaluate
