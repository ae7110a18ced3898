// BiLD against Algorithm 1 (Kim et al.): hand-computed cases, the options that change it, its ablations and limits.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/infer/acceptance/bild_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

// Small: 2 2 2 then unsure; large: 2 3 2 4 ... The second token is given p = .1 / 4 by the large model.
const Case kHandCase{scripted(6, {{2, 0.9}, {3, 0.9}, {2, 0.9}, {4, 0.9}}),
                     scripted(6, {{2, 0.8}, {2, 0.8}, {2, 0.8}, {5, 0.3}, {5, 0.8}}), 6};

TEST(Bild, FollowsAlgorithm1WhereTheLargeModelAgreesEnough) {
  // -log(.1/4) = 3.69 is within a threshold of 4: nothing is rolled back. Small writes 2 2 2, falls back at .3, large
  // adds 4; then small (sure again) writes 5 for the two places left, which are final.
  const auto result = run(kHandCase, bild(0.5, 4.0, 6));
  EXPECT_EQ(result.ids, (Ids{2, 2, 2, 4, 5, 5}));
  EXPECT_EQ(result.stats.target_runs, 1);
  EXPECT_EQ(result.stats.fallbacks, 1);
  EXPECT_EQ(result.stats.rollbacks, 0);
  EXPECT_EQ(result.stats.drafted, 5);
  EXPECT_EQ(result.stats.unverified, 2);
  EXPECT_EQ(result.stats.draft_runs, 6);  // the run that was unsure drafted nothing
}

TEST(Bild, RollsBackToTheFirstDistantToken) {
  // A threshold of 3 is passed at the second token: large writes 3 there. Small goes on with 2, falls back, large
  // adds 4.
  const auto result = run(kHandCase, bild(0.5, 3.0, 4));
  EXPECT_EQ(result.ids, (Ids{2, 3, 2, 4}));
  EXPECT_EQ(result.stats.target_runs, 2);
  EXPECT_EQ(result.stats.rollbacks, 1);
  EXPECT_EQ(result.stats.accepted_histogram[1], 2);  // 2 kept of 2 2 2, then 2 kept of 2
  EXPECT_EQ(result.stats.drafted, 4);
  EXPECT_DOUBLE_EQ(result.stats.fallback_rate(), 0.5);
  EXPECT_DOUBLE_EQ(result.stats.rollback_rate(), 0.25);
}

TEST(Bild, ThresholdComparesStrictly) {
  const double distance = -std::log(0.1 / 4);
  EXPECT_EQ(run(kHandCase, bild(0.5, distance + 1e-6, 4)).stats.rollbacks, 0);
  EXPECT_EQ(run(kHandCase, bild(0.5, distance - 1e-6, 4)).stats.rollbacks, 1);
}

TEST(Bild, FallbackThresholdIsInclusive) {
  // p_S = 1/2 exactly (a power of two, so that no rounding decides).
  const Case oracles{scripted(4, {{2, 0.9}}), scripted(4, {{3, 0.5}}), 4};
  EXPECT_EQ(run(oracles, bild(0.5 - 1e-9, kNever, 3)).ids, (Ids{3, 3, 3}));
  EXPECT_EQ(run(oracles, bild(0.5 + 1e-9, kNever, 3)).ids, (Ids{2, 2, 2}));
}

TEST(Bild, LiteralRollsBackATokenThatIsTheTargetsOwn) {
  // Large finds 2 most likely with .4 (distance .92). Beyond it, at the third token, it wants 3 and gives 2 little.
  const Case oracles{scripted(4, {{2, 0.4}, {2, 0.4}, {3, 0.9}, {2, 0.4}}), scripted(4, {{2, 0.9}}), 4};
  DecodeOptions options = bild(0.5, 0.5, 3);
  options.verify_end = true;
  const auto effective = run(oracles, options);
  options.rollback_rule = "literal";
  const auto literal = run(oracles, options);
  EXPECT_EQ(effective.ids, (Ids{2, 2, 3}));
  EXPECT_EQ(literal.ids, (Ids{2, 2, 3}));
  EXPECT_EQ(effective.stats.rollbacks, 1);
  EXPECT_EQ(effective.stats.target_runs, 1);
  EXPECT_EQ(literal.stats.rollbacks, 3);
  EXPECT_EQ(literal.stats.target_runs, 3);
}

Case different_models() {
  return {random_oracle(7, 21, 1.5, {kEos}), random_oracle(7, 22, 1.5, {kEos}), 7};
}

Ids greedy_ids(const OracleFunction& function, int64_t limit) {
  DecodeOptions options;
  options.max_new_tokens = limit;
  return run({function, function, 7}, options).ids;
}

TEST(Bild, AlwaysFallingBackOrAlwaysRollingBackIsTheTarget) {
  const Ids target = greedy_ids(different_models().target, 25);
  const auto fallback = run(different_models(), bild(1.01, kNever, 25));
  EXPECT_EQ(fallback.ids, target);
  EXPECT_EQ(fallback.stats.drafted, 0);
  DecodeOptions options = bild(0, 0, 25);
  options.rollback_rule = "literal";
  options.verify_end = true;
  EXPECT_EQ(run(different_models(), options).ids, target);
}

TEST(Bild, WithoutFallbackAndRollbackItIsTheSmallModelButForHandOvers) {
  const auto result = run(different_models(), bild(0, kNever, 25));
  EXPECT_EQ(result.stats.target_runs, 2);  // 10 + 1, 10 + 1, and 3 that are final
  EXPECT_EQ(result.stats.drafted, 23);
  EXPECT_EQ(result.stats.rollbacks, 0);
  // Within the first ten tokens nobody but the small model writes.
  const Ids small = greedy_ids(different_models().drafter, 10);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), result.ids.begin()));
  EXPECT_EQ(run(different_models(), bild(0, kNever, 8)).ids, greedy_ids(different_models().drafter, 8));
  // The rest: whose turn it is says who chooses.
  for (size_t i = 0; i < result.ids.size(); ++i) {
    const auto& model = i % 11 == 10 ? different_models().target : different_models().drafter;
    const auto p = model(Ids{2}, std::span(result.ids.data(), i));
    EXPECT_EQ(result.ids[i], std::max_element(p.begin(), p.end()) - p.begin()) << i;
  }
}

TEST(Bild, WithoutFallbackTheWindowIsFixed) {
  for (const int64_t window : {3, 5, 10}) {
    DecodeOptions options = bild(0.9, kNever, 22);
    options.window_rule = "fixed";
    options.window = window;
    const auto stats = run(different_models(), options).stats;
    EXPECT_EQ(stats.target_runs, 22 / (window + 1));
    EXPECT_EQ(stats.accepted, stats.drafted);
    options.verify_end = true;
    EXPECT_EQ(run(different_models(), options).stats.target_runs, (22 + window) / (window + 1));
  }
}

TEST(Bild, SamplingDrawsFromBothModelsUnderTheSamePolicies) {
  // One place: small is sure (.8 on 2), so its token is sampled from its warped distribution and never rolled back.
  const Case oracles{scripted(4, {{3, 0.6}}), scripted(4, {{2, 0.8}}), 4};
  DecodeOptions options = bild(0.5, kNever, 1);
  options.temperature = 1;
  options.num_samples = 4000;
  const auto counts = count_sequences(decode(oracles, options, std::vector<Ids>{{2}}));
  EXPECT_NEAR(static_cast<double>(counts.at({2})) / 4000, 0.8, 0.026);  // four standard errors
  options.fallback = 0.9;
  const auto fallen = count_sequences(decode(oracles, options, std::vector<Ids>{{2}}));
  EXPECT_NEAR(static_cast<double>(fallen.at({3})) / 4000, 0.6, 0.031);
}

TEST(Bild, RollbackReadsTheUnwarpedDistribution) {
  // Top-k 1 would give the small model's token no probability; unwarped its distance is 1.9.
  const Case oracles{scripted(4, {{3, 0.7}}), scripted(4, {{2, 0.9}}), 4};
  DecodeOptions options = bild(0.5, 2.0, 2);
  options.verify_end = true;
  options.temperature = 1;
  options.top_k = 1;
  EXPECT_EQ(run(oracles, options).ids, (Ids{2, 2}));
  options.rollback = 1.8;
  EXPECT_EQ(run(oracles, options).ids, (Ids{3, 3}));
}

}  // namespace
}  // namespace draftsmith::infer::testing
