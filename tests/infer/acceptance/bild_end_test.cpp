// Ends of BiLD's outputs: a draft that ends with EOS or at the length limit is final, or verified on request.
#include <cmath>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/drafters/prompt_lookup_drafter.h"
#include "infer/parts.h"
#include "tests/infer/acceptance/bild_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

// A model that writes 2, 2 and EOS; the other never ends.
const Case kEnds{scripted(5, {{2, 0.9}, {3, 0.9}, {3, 0.9}, {4, 0.9}}),
                 [](auto, std::span<const int64_t> prefix) { return one_hot(5, prefix.size() < 2 ? 2 : kEos); }, 5};

TEST(BildEnd, AnEosOfTheSmallModelEndsTheTextWithoutARunOfTheTarget) {
  for (const char* rule : {"effective", "literal"}) {
    DecodeOptions options = bild(0.5, 1, 10);
    options.rollback_rule = rule;
    const GenerationResult result = run(kEnds, options);
    EXPECT_EQ(result.ids, (Ids{2, 2, kEos})) << rule;
    EXPECT_EQ(result.stats.target_runs, 0);
    EXPECT_EQ(result.stats.fallbacks, 0);
    EXPECT_EQ(result.stats.verifications, 0);
    EXPECT_EQ(result.stats.unverified, 3);
    EXPECT_EQ(result.stats.accepted, 3);
    EXPECT_EQ(result.stats.emitted, 3);
    EXPECT_TRUE(std::isnan(result.stats.acceptance_rate()));
  }
}

TEST(BildEnd, VerifyEndLetsTheTargetTakeTheEndBack) {
  DecodeOptions options = bild(0.5, 1, 6);
  options.verify_end = true;
  const GenerationResult result = run(kEnds, options);
  EXPECT_EQ(result.ids, (Ids{2, 3, 3, 4, 4, 4}));
  EXPECT_EQ(result.stats.unverified, 0);
  EXPECT_EQ(result.stats.rollbacks, 5);
}

TEST(BildEnd, TheLengthLimitEndsATextToo) {
  DecodeOptions options = bild(0, kNever, 2);
  EXPECT_EQ(run(kEnds, options).stats.target_runs, 0);
  EXPECT_EQ(run(kEnds, options).ids, (Ids{2, 2}));
  options.verify_end = true;
  EXPECT_EQ(run(kEnds, options).stats.target_runs, 1);
}

TEST(BildEnd, MinNewTokensHoldsForTheSmallModelsEosToo) {
  DecodeOptions options = bild(0, kNever, 12);
  const Case oracles{constant_oracle({0.1, 0.1, 0.1, 0.7}), constant_oracle({0.1, 0.6, 0.1, 0.2})};
  options.min_new_tokens = 5;
  const GenerationResult result = run(oracles, options);
  EXPECT_EQ(result.ids, (Ids{3, 3, 3, 3, 3, kEos}));
  EXPECT_EQ(result.stats.target_runs, 0);
}

TEST(BildEnd, LosslessRulesVerifyEveryEnd) {
  for (const char* acceptance : {"exact", "rejection"}) {
    DecodeOptions options = bild(0.5, 5, 8);
    options.acceptance = acceptance;
    EXPECT_TRUE(acceptance_traits(options).verifies_end);
    EXPECT_EQ(run(kEnds, options).ids, (Ids{2, 3, 3, 4, 4, 4, 4, 4})) << acceptance;
  }
  DecodeOptions options = bild(0.5, 5, 8);
  EXPECT_FALSE(acceptance_traits(options).verifies_end);
  options.verify_end = true;
  EXPECT_TRUE(acceptance_traits(options).verifies_end);
  EXPECT_FALSE(acceptance_traits(options).lossless);
}

TEST(BildEnd, ProposedTokensAreVerifiedSinceNoProcessorHasSeenThem) {
  OracleModel target(oracle_info(6), scripted(6, {{2, 0.9}}));
  DecodeOptions options = bild(0.5, 1, 8);
  options.window_rule = "fixed";
  GenerationModels models;
  models.target = &target;
  models.drafter = lookup_drafter(4);
  // Look-up proposes EOS after 2, as in the source.
  const auto result = Generator(models, options).generate(std::vector<Ids>{{2, kEos, 2, kEos}})[0];
  EXPECT_EQ(result.ids, Ids(8, 2));
  EXPECT_EQ(result.stats.unverified, 0);
}

TEST(BildEnd, CountsOfJudgedAndUnverifiedTokensAddUp) {
  DecodeStats sum;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto large = random_oracle(5, seed);
    const Case oracles{large, mixture(large, random_oracle(5, seed + 100), 0.4), 5};
    const DecodeStats stats = run(oracles, bild(0.4, 1, 15)).stats;
    EXPECT_EQ(stats.accepted + stats.target_runs - stats.cut, stats.emitted);
    int64_t verifications = 0;
    for (const int64_t count : stats.accepted_histogram) verifications += count;
    EXPECT_EQ(verifications, stats.target_runs);
    sum += stats;
  }
  EXPECT_GT(sum.unverified, 20);
  EXPECT_GT(sum.target_runs, 40);
  EXPECT_LT(sum.acceptance_rate(), 1);
}

// Rows end in different rounds, some verified and some not; tokens are reported once each.
TEST(BildEnd, RowsOfABatchEndAsTheyDoAlone) {
  const auto large = random_oracle(6, 3);
  const Case oracles{large, mixture(large, random_oracle(6, 4), 0.5), 6};
  const std::vector<Ids> sources{{2}, {3, 2}, {4}, {5, 5, 5}, {2, 4}, {3}};
  for (const char* rule : {"effective", "literal", "released_code"}) {
    for (const double temperature : {0.0, 0.9}) {
      DecodeOptions options = bild(0.4, 1.5, 14);
      options.rollback_rule = rule;
      options.temperature = temperature;
      options.num_samples = 3;
      const auto alone = decode(oracles, options, sources);
      options.batch_size = 4;
      OracleModel target(oracle_info(6), oracles.target);
      OracleModel drafter(oracle_info(6), oracles.drafter);
      GenerationModels models;
      models.target = &target;
      models.drafter = as_drafter(drafter);
      std::vector<Ids> heard(alone.size());
      std::vector<int> ends(alone.size());
      const auto together =
          Generator(models, options)
              .generate(sources, 0, {}, [&](size_t output, std::span<const int64_t> tokens, bool end) {
                heard[output].insert(heard[output].end(), tokens.begin(), tokens.end());
                ends[output] += end ? 1 : 0;
              });
      EXPECT_EQ(ids_of(together), ids_of(alone)) << rule << temperature;
      EXPECT_EQ(heard, ids_of(alone));
      EXPECT_EQ(ends, std::vector<int>(alone.size(), 1));
      EXPECT_EQ(total(together).target_runs, total(alone).target_runs);
      EXPECT_GT(total(together).unverified, 0);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
