// The papers' formulas: their published numbers, their limits, and brute force where they are expectations.
#include "evaluate/theory/formulas.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"

namespace draftsmith::evaluate {
namespace {

infer::StepCosts papers_costs(double cost_ratio) {
  return {.target = {1}, .draft = cost_ratio};
}

// Leviathan et al., Table 1: c = c^ = 0.
struct PublishedSpeed {
  double alpha;
  int64_t window;
  double operations;
  double speed;
};
constexpr PublishedSpeed kPublishedSpeeds[] = {{0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44},
                                               {0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86}};

TEST(TheoryFormulas, SpeedAndOperationsEqualTheTableOfLeviathan) {
  for (const auto& [alpha, window, operations, speed] : kPublishedSpeeds) {
    EXPECT_NEAR(walltime_improvement(alpha, window, papers_costs(0)), speed, 0.0051) << alpha << " " << window;
    EXPECT_NEAR(operations_factor(alpha, window, 0), operations, 0.0051) << alpha << " " << window;
  }
}

TEST(TheoryFormulas, ExpectedTokensIsTheGeometricSumEverywhere) {
  for (const double alpha : {0.0, 0.3, 0.999}) {
    for (const int64_t window : {0, 1, 7, 40}) {
      EXPECT_NEAR(expected_tokens(alpha, window), (1 - std::pow(alpha, window + 1)) / (1 - alpha), 1e-10);
    }
  }
  EXPECT_DOUBLE_EQ(expected_tokens(1, 4), 5);
  EXPECT_NEAR(expected_tokens(1 - 1e-16, 4), 5, 1e-12);  // where the closed form has no digits
}

TEST(TheoryFormulas, AWindowOfOneGivesTheClosedForm) {
  EXPECT_NEAR(walltime_improvement(0.7, 1, papers_costs(0.2)), 1.7 / 1.2, 1e-12);
}

TEST(TheoryFormulas, SomeWindowHelpsIfAndOnlyIfAlphaExceedsTheCostRatio) {
  for (double alpha = 0.05; alpha < 1; alpha += 0.1) {
    for (double c = 0; c < 1.2; c += 0.1) {
      const BestWindow best = best_window(alpha, papers_costs(c));
      EXPECT_EQ(best.window > 0, alpha > c) << alpha << " " << c;
      EXPECT_GE(best.speedup, alpha > c ? (1 + alpha) / (1 + c) - 1e-12 : 1) << alpha << " " << c;  // Corollary 3.9
    }
  }
}

TEST(TheoryFormulas, TheBestWindowIsBetterThanItsNeighbours) {
  const infer::StepCosts costs = papers_costs(0.05);
  const BestWindow best = best_window(0.8, costs);
  EXPECT_GT(best.window, 1);
  EXPECT_DOUBLE_EQ(best.speedup, walltime_improvement(0.8, best.window, costs));
  EXPECT_GT(best.speedup, walltime_improvement(0.8, best.window - 1, costs));
  EXPECT_GT(best.speedup, walltime_improvement(0.8, best.window + 1, costs));
  // More accepted or cheaper drafts: longer windows (Figure 3 of the paper).
  EXPECT_GT(best_window(0.9, costs).window, best.window);
  EXPECT_GT(best_window(0.8, papers_costs(0.01)).window, best.window);
  EXPECT_EQ(best_window(1, papers_costs(0), 9).window, 9);
}

TEST(TheoryFormulas, AVerificationThatGrowsWithTheWindowShortensTheBestOne) {
  const infer::StepCosts flat{.target = {2, 2, 2, 2, 2, 2, 2}, .draft = 0.1};
  const infer::StepCosts rising{.target = {2, 2.2, 2.4, 2.6, 2.8, 3.0, 3.2}, .draft = 0.1};
  EXPECT_DOUBLE_EQ(best_window(0.8, flat).speedup, best_window(0.8, papers_costs(0.05)).speedup);
  EXPECT_LT(best_window(0.8, rising).window, best_window(0.8, flat).window);
  // By hand: 1 + .8 + .64 tokens in two drafter steps and a target step of 2.4.
  EXPECT_NEAR(walltime_improvement(0.8, 2, rising), 2.44 * 2 / (0.2 + 2.4), 1e-12);
}

TEST(TheoryFormulas, AFallingCurveIsContinuedAsALevelOne) {
  const infer::StepCosts falling{.target = {10, 9}, .draft = 0.5};
  EXPECT_DOUBLE_EQ(falling.relative_target(1.5), 0.95);
  EXPECT_DOUBLE_EQ(falling.relative_target(2), 0.9);
  EXPECT_DOUBLE_EQ(falling.relative_target(40), 0.9);
  EXPECT_EQ(best_window(0.8, falling).window, best_window(0.8, {.target = {9, 9}, .draft = 0.5}).window);
  EXPECT_GT(specgame_latency(0.8, 64, falling).long_run, 9.0 / 5);  // 1 / (1 - .8) tokens at most
}

TEST(TheoryFormulas, SpecGameOfOneDraftedTokenIsItsEquationNine) {
  for (const double p : {0.0, 0.25, 0.8, 1.0}) {
    EXPECT_NEAR(specgame_latency(p, 1, 7.0).e_pt, (1 - p / 2) * 7, 1e-12);
  }
}

// Equations (12) and (13), literally.
double recursion(double p, int64_t k, double time, int64_t i) {
  if (i == k) return p * time / static_cast<double>(i + 1);
  return p * ((1 - p) * time / static_cast<double>(i + 1) + recursion(p, k, time, i + 1));
}

TEST(TheoryFormulas, SpecGameEqualsTheRecursionOfThePaper) {
  for (int64_t k = 1; k <= 7; ++k) {
    for (const double p : {0.0, 0.37, 0.8, 1.0}) {
      EXPECT_NEAR(specgame_latency(p, k, 3.0).e_pt, (1 - p) * 3 + recursion(p, k, 3, 1), 1e-12) << k << " " << p;
    }
  }
}

TEST(TheoryFormulas, SpecGameGivesTheTwoSpeedupsOfOurMethodsPage) {
  // methods.md §1, P = .8, K = 5: by E_pt 2.39, in the long run 3.69.
  const SpecGameLatency latency = specgame_latency(0.8, 5, 1.0);
  EXPECT_NEAR(1 / latency.e_pt, 2.39, 0.005);
  EXPECT_NEAR(1 / latency.long_run, 3.69, 0.005);
}

TEST(TheoryFormulas, AutoregressiveDecodingTakesOneIterationPerToken) {
  EXPECT_DOUBLE_EQ(specgame_latency(0.8, 0, 5.0).e_pt, 5);
  EXPECT_DOUBLE_EQ(specgame_latency(0.8, 0, infer::StepCosts{.target = {5, 6}, .draft = 1}).long_run, 5);
}

TEST(TheoryFormulas, SpecGameFromStepTimesCountsDraftsAndTheirVerification) {
  const infer::StepCosts costs{.target = {10, 11, 12, 13}, .draft = 2};
  EXPECT_DOUBLE_EQ(specgame_latency(0.6, 3, costs).e_pt, specgame_latency(0.6, 3, 6.0 + 13).e_pt);
  EXPECT_NEAR(10 / specgame_latency(0.6, 3, costs).long_run, walltime_improvement(0.6, 3, costs), 1e-12);
}

TEST(TheoryFormulas, SimulatedIterationsAgreeWithBothLatencies) {
  constexpr double kAcceptance = 0.7;
  constexpr int64_t kDrafted = 4;
  constexpr int64_t kIterations = 200'000;
  const CounterRandom random(17, 0);
  uint64_t counter = 0;
  double per_iteration = 0;
  int64_t emitted = 0;
  for (int64_t i = 0; i < kIterations; ++i) {
    int64_t accepted = 0;
    while (accepted < kDrafted && random.uniform(counter++) < kAcceptance) ++accepted;
    per_iteration += 1 / static_cast<double>(accepted + 1);
    emitted += accepted + 1;
  }
  const SpecGameLatency latency = specgame_latency(kAcceptance, kDrafted, 1.0);
  // Standard errors: .0007 and .0005; five of them.
  EXPECT_NEAR(per_iteration / kIterations, latency.e_pt, 0.0035);
  EXPECT_NEAR(kIterations / static_cast<double>(emitted), latency.long_run, 0.0025);
}

// Yang et al., section 4.3: Vicuna-13B, 40 layers, prediction at the 20th.
TEST(TheoryFormulas, PpdGivesThePublishedEndsOfItsTradeOff) {
  const PpdSetting best{.layers = 40, .early_layer = 20, .candidates = 5, .match_rate = 0.7415};   // SQUAD, trained
  const PpdSetting worst{.layers = 40, .early_layer = 20, .candidates = 1, .match_rate = 0.2163};  // WMT
  EXPECT_NEAR(ppd_cost_per_token(best).latency / 40, 0.629, 0.0005);
  EXPECT_NEAR(ppd_cost_per_token(best).units_in_use(), 4.973, 0.0005);
  EXPECT_NEAR(ppd_cost_per_token(worst).latency / 40, 0.892, 0.0005);
  EXPECT_NEAR(ppd_cost_per_token(worst).units_in_use(), 1.561, 0.0005);
  EXPECT_NEAR(ppd_cost_per_token(best).compute / 40, (2 + 5 - 0.7415) / 2, 1e-12);  // equation (6)
}

TEST(TheoryFormulas, PpdOfALongSequenceApproachesItsLimit) {
  const PpdSetting setting{.layers = 12, .early_layer = 8, .candidates = 3, .match_rate = 0.6};
  const PpdCost total = ppd_cost(setting, 100'000);
  EXPECT_NEAR(total.latency / 100'000, ppd_cost_per_token(setting).latency, 1e-4);
  EXPECT_NEAR(total.compute / 100'000, ppd_cost_per_token(setting).compute, 1e-4);
  EXPECT_DOUBLE_EQ(ppd_cost(setting, 1).latency, 12);  // nothing to run ahead of
  EXPECT_DOUBLE_EQ(ppd_cost(setting, 3).latency, 36 - 4 * 2 * 0.6);
  // Figure 2 of the paper: d + 2 d-bar for three tokens that all match.
  EXPECT_DOUBLE_EQ(ppd_cost({.layers = 12, .early_layer = 8, .candidates = 3, .match_rate = 1}, 3).latency, 12 + 2 * 8);
}

TEST(TheoryFormulas, RefuseWhatIsNoRateWindowOrLayer) {
  EXPECT_THROW(expected_tokens(1.1, 2), std::invalid_argument);
  EXPECT_THROW(expected_tokens(std::nan(""), 2), std::invalid_argument);
  EXPECT_THROW(expected_tokens(0.5, -1), std::invalid_argument);
  EXPECT_THROW(operations_factor(0.5, 1, -0.1), std::invalid_argument);
  EXPECT_THROW(specgame_latency(0.5, 1, -1.0), std::invalid_argument);
  EXPECT_THROW(ppd_cost({.layers = 12, .early_layer = 5}, 4), std::invalid_argument);
  EXPECT_THROW(ppd_cost_per_token({.layers = 12, .early_layer = 13}), std::invalid_argument);
}

}  // namespace
}  // namespace draftsmith::evaluate
