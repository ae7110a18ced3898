// Layer-units of simulated sequences are those of Theorem 4.1 (Yang et al. 2024).
#include "infer/inside/ppd_account.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "evaluate/theory/formulas.h"

namespace draftsmith::infer {
namespace {

// A sequence each of whose tokens is among the candidates with probability `match_rate`, as the decoder counts it.
DecodeStats simulate(const evaluate::PpdSetting& setting, int64_t tokens, uint64_t seed) {
  const CounterRandom random(seed, 0);
  const PpdAccount account(setting.layers, setting.early_layer);
  DecodeStats stats;
  bool resumed = false;
  for (int64_t t = 0; t < tokens; ++t) {
    const bool matched = random.uniform(static_cast<uint64_t>(t)) < setting.match_rate;
    account.count({resumed, setting.candidates, t + 1 < tokens, matched}, stats);
    resumed = matched;
  }
  return stats;
}

TEST(PpdAccount, EqualsTheTheoremOnSimulatedMatches) {
  uint64_t seed = 0;
  for (const int64_t layers : {1, 2, 3, 6, 7, 12, 40}) {
    for (int64_t early = (layers + 1) / 2; early <= layers; ++early) {
      for (const int64_t candidates : {1, 3, 5, 100}) {
        for (const int64_t tokens : {1, 2, 17, 128}) {
          const evaluate::PpdSetting setting{layers, early, candidates, static_cast<double>(++seed % 11) / 10};
          const DecodeStats stats = simulate(setting, tokens, seed);
          ASSERT_EQ(stats.early_predictions, tokens - 1);
          evaluate::PpdSetting observed = setting;
          observed.match_rate = tokens > 1 ? stats.match_rate() : 0;
          const evaluate::PpdCost theorem = evaluate::ppd_cost(observed, tokens);
          ASSERT_NEAR(static_cast<double>(stats.latency_units), theorem.latency, 1e-9 * theorem.latency);
          ASSERT_NEAR(static_cast<double>(stats.compute_units), theorem.compute, 1e-9 * theorem.compute);
        }
      }
    }
  }
}

// By hand: d 4, d-bar 3, k 2; miss, match, match, end: 4 + 4 + 3 + 3 units, and a unit for each of 4 * 2 branches.
TEST(PpdAccount, CountsAHandMadeSequence) {
  const PpdAccount account(4, 3);
  DecodeStats stats;
  account.count({false, 2, true, false}, stats);
  account.count({false, 2, true, true}, stats);
  account.count({true, 2, true, true}, stats);
  account.count({true, 2, false, true}, stats);
  EXPECT_EQ(stats.latency_units, 14);
  EXPECT_EQ(stats.compute_units, 22);
  EXPECT_EQ(stats.layer_runs, 22);
  EXPECT_EQ(stats.early_predictions, 3);
  EXPECT_EQ(stats.early_matches, 2);
}

// The mean over many sequences approaches the theorem's expectation: 2,000 sequences of 64 tokens give the observed
// rate a standard deviation of 0.0014, so a fair process fails once in 10,000 seeds (four of them).
TEST(PpdAccount, ExpectationIsTheTheoremsAtTheTrueRate) {
  const evaluate::PpdSetting setting{6, 4, 3, 0.4};
  DecodeStats sum;
  for (uint64_t seed = 0; seed < 2000; ++seed) sum += simulate(setting, 64, 1000 + seed);
  const double expected = evaluate::ppd_cost(setting, 64).latency * 2000;
  EXPECT_NEAR(static_cast<double>(sum.latency_units), expected, 4 * 0.0014 * 2 * 63 * 2000);
}

TEST(PpdAccount, RefusesLayersBeforeTheMiddle) {
  EXPECT_THROW(PpdAccount(5, 2), std::logic_error);
  EXPECT_THROW(PpdAccount(4, 5), std::logic_error);
  EXPECT_EQ(PpdAccount(5, 3).ahead(), 2);
}

}  // namespace
}  // namespace draftsmith::infer
