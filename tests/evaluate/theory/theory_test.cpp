// The papers' formulas: their published numbers, their limits, and what decoding with known distributions measures.
#include <cmath>

#include <gtest/gtest.h>

#include "evaluate/theory/formulas.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::evaluate {
namespace {

using infer::testing::constant_oracle;
using infer::testing::decode;
using infer::testing::Ids;
using infer::testing::warped;

infer::StepCosts papers_costs(double cost_ratio) {
  return {.target = {1}, .draft = cost_ratio};
}

// Leviathan et al., Table 1: c = c^ = 0.
struct PublishedSpeed {
  double alpha;
  int64_t window;
  double operations, speed;
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

TEST(TheoryFormulas, OutputsThatEndHaveFewerTokensARun) {
  EXPECT_DOUBLE_EQ(expected_tokens(0, 4, 7), 1);
  EXPECT_DOUBLE_EQ(expected_tokens(1, 4, 11), 11 / 3.0);
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 1, 2), 2 / 1.5);
  EXPECT_NEAR(expected_tokens(0.9, 4, 100'000), expected_tokens(0.9, 4), 1e-3);
  EXPECT_THROW(expected_tokens(0.9, 4, -1), std::invalid_argument);
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

// Equations (12) and (13), literally.
double recursion(double p, int64_t k, double time, int64_t i) {
  if (i == k) return p * time / static_cast<double>(i + 1);
  return p * ((1 - p) * time / static_cast<double>(i + 1) + recursion(p, k, time, i + 1));
}

TEST(TheoryFormulas, SpecGameEqualsTheRecursionOfThePaper) {
  for (int64_t k = 1; k <= 7; ++k) {
    for (const double p : {0.0, 0.37, 0.8, 1.0}) {
      const infer::StepCosts costs{.target = {3, 3}, .draft = 0};
      EXPECT_NEAR(specgame_latency(p, k, costs).e_pt, (1 - p) * 3 + recursion(p, k, 3, 1), 1e-12) << k << " " << p;
    }
  }
}

// Yang et al., section 4.3: Vicuna-13B, 40 layers, prediction at the 20th.
TEST(TheoryFormulas, PpdGivesThePublishedEndsOfItsTradeOff) {
  EXPECT_NEAR(ppd_latency(40, 20, 0.7415) / 40, 0.629, 0.0005);  // SQUAD, trained
  EXPECT_NEAR(ppd_latency(40, 20, 0.2163) / 40, 0.892, 0.0005);  // WMT
}

infer::DecodeOptions long_run(int64_t window) {
  infer::DecodeOptions options{.window = window, .max_new_tokens = 600, .num_samples = 16, .measure_alpha = true};
  options.method = "speculative";
  return options;
}

// Without EOS (id 1 has probability 0) and with an overlap of .7.
const std::vector<double> kTarget = {0.5, 0, 0.3, 0.2}, kDrafter = {0.2, 0, 0.4, 0.4};

TEST(Theory, TokensPerTargetRunFollowTheFormula) {
  for (const int64_t window : {1, 2, 5, 8}) {
    const auto results =
        decode({constant_oracle(kTarget), constant_oracle(kDrafter)}, long_run(window), std::vector<Ids>{{2}});
    const infer::DecodeStats stats = infer::total(results);
    const double predicted = (1 - std::pow(0.7, static_cast<double>(window + 1))) / (1 - 0.7);
    // About 3,000 runs of standard deviation below 2.3: four standard errors are .17; truncated windows cost < .5 %.
    EXPECT_NEAR(stats.tokens_per_target_run(), predicted, 0.17) << "window " << window;
    for (const double rate : stats.acceptance_by_position()) EXPECT_NEAR(rate, 0.7, 0.06);
  }
}

TEST(Theory, AlphaIsMeasuredWithWarpedDistributions) {
  infer::DecodeOptions options = long_run(3);
  options.top_k = 2;
  const auto p = warped(kTarget, {1, 2, 1});
  const auto q = warped(kDrafter, {1, 2, 1});
  double expected = 0;
  for (size_t i = 0; i < p.size(); ++i) expected += std::min(p[i], q[i]);
  const auto results = decode({constant_oracle(kTarget), constant_oracle(kDrafter)}, options, std::vector<Ids>{{2}});
  EXPECT_NEAR(infer::total(results).alpha(), expected, 1e-12);
}

}  // namespace
}  // namespace draftsmith::evaluate
