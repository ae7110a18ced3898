// Measured acceptance against theory: alpha, tokens per target run, the limits of a perfect and a useless drafter.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/oracle_fixtures.h"

namespace draftsmith::evaluate {
namespace {

using infer::testing::Case;
using infer::testing::constant_oracle;
using infer::testing::decode;
using infer::testing::Ids;
using infer::testing::kEos;
using infer::testing::mixture;
using infer::testing::random_oracle;
using infer::testing::warped;

infer::DecodeOptions long_run(int64_t window) {
  infer::DecodeOptions options;
  options.method = "speculative";
  options.window = window;
  options.max_new_tokens = 600;
  options.num_samples = 16;
  options.measure_alpha = true;
  return options;
}

// Without EOS (id 1 has probability 0) and with an overlap of .7.
const std::vector<double> kTarget = {0.5, 0, 0.3, 0.2};
const std::vector<double> kDrafter = {0.2, 0, 0.4, 0.4};

TEST(Theory, MeasuredAlphaIsTheOverlapOfTheDistributions) {
  const auto results =
      decode({constant_oracle(kTarget), constant_oracle(kDrafter)}, long_run(4), std::vector<Ids>{{2}});
  EXPECT_NEAR(infer::total(results).alpha(), 0.7, 1e-12);
}

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

TEST(Theory, PerfectDrafterEmitsAWholeWindowAndOneEachRun) {
  const Case oracles{random_oracle(5, 3, 1.5, {kEos}), random_oracle(5, 3, 1.5, {kEos}), 5};
  for (const char* method : {"speculative", "assisted", "bild"}) {
    for (const int64_t window : {1, 3, 7}) {
      infer::DecodeOptions options;
      options.method = method;
      options.window = window;
      options.window_rule = "fixed";
      options.max_new_tokens = 5 * (window + 1);
      const infer::DecodeStats stats = decode(oracles, options, std::vector<Ids>{{2, 3}})[0].stats;
      EXPECT_EQ(stats.target_runs, 5) << method << " " << window;
      EXPECT_DOUBLE_EQ(stats.tokens_per_target_run(), static_cast<double>(window + 1));
      EXPECT_DOUBLE_EQ(stats.acceptance_rate(), 1);
    }
  }
}

TEST(Theory, DrafterThatIsAlwaysWrongEmitsOneTokenEachRun) {
  const Case oracles{constant_oracle({0.5, 0, 0.5, 0}), constant_oracle({0, 0, 0, 1})};
  for (const char* method : {"speculative", "assisted"}) {
    infer::DecodeOptions options;
    options.method = method;
    options.window = 4;
    options.max_new_tokens = 20;
    options.measure_alpha = true;
    const infer::DecodeStats stats = decode(oracles, options, std::vector<Ids>{{2}})[0].stats;
    EXPECT_EQ(stats.target_runs, 20) << method;
    EXPECT_EQ(stats.accepted, 0);
    EXPECT_DOUBLE_EQ(stats.alpha(), 0);
  }
}

TEST(Theory, CountsOfEveryMethodAddUp) {
  const Case oracles{random_oracle(6, 8), mixture(random_oracle(6, 8), random_oracle(6, 9), 0.4), 6};
  const std::vector<Ids> sources = {{2}, {}, {3, 4}, {5}, {2, 2}, {4}};
  for (const char* method : {"speculative", "assisted", "bild"}) {
    infer::DecodeOptions options;
    options.method = method;
    options.max_new_tokens = 11;
    options.batch_size = 4;
    options.num_samples = 5;
    options.rollback = 1;
    for (const auto& [ids, stats, log_probabilities, score, error] : decode(oracles, options, sources)) {
      const auto& histogram = stats.accepted_histogram;
      EXPECT_EQ(std::accumulate(histogram.begin(), histogram.end(), int64_t{0}), stats.verifications);
      EXPECT_EQ(stats.verifications, stats.target_runs);
      EXPECT_EQ(stats.emitted, static_cast<int64_t>(ids.size()));
      EXPECT_EQ(stats.accepted + stats.verifications - stats.cut, stats.emitted) << method;
      EXPECT_LE(stats.accepted, stats.drafted);
      EXPECT_LE(stats.drafted, stats.draft_runs);
      EXPECT_LE(stats.emitted, 11);
    }
  }
}

TEST(Theory, GreedyRunsTheTargetOnceForEachToken) {
  const Case oracles{random_oracle(6, 8), random_oracle(6, 9), 6};
  infer::DecodeOptions options;
  options.max_new_tokens = 9;
  for (const auto& [ids, stats, log_probabilities, score, error] :
       decode(oracles, options, std::vector<Ids>{{2}, {3}, {4, 5}})) {
    EXPECT_EQ(stats.target_runs, static_cast<int64_t>(ids.size()));
    EXPECT_TRUE(stats.accepted_histogram.empty());
    EXPECT_EQ(stats.draft_runs, 0);
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
