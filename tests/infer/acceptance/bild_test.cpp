// BiLD: cases computed by hand, small programs written down again (Algorithm 1 of the paper, Kim et al., and the
// authors' program), the ends of outputs, its limits, and the engagement of a large model.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/random.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/registry.h"
#include "infer/engagement.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

// Distribution with the given probability on one token, the rest spread over the others but EOS.
std::vector<double> peaked(int64_t vocabulary, int64_t token, double probability) {
  std::vector<double> p(static_cast<size_t>(vocabulary), (1 - probability) / static_cast<double>(vocabulary - 2));
  p[kEos] = 0;
  p[static_cast<size_t>(token)] = probability;
  return p;
}

// A model that says script[i] (token, probability) after i tokens, whatever they are; the last entry repeats.
OracleFunction scripted(int64_t vocabulary, std::vector<std::pair<int64_t, double>> script) {
  return [=](std::span<const int64_t>, std::span<const int64_t> prefix) {
    const auto& [token, probability] = script[std::min(prefix.size(), script.size() - 1)];
    return peaked(vocabulary, token, probability);
  };
}

constexpr double kNever = std::numeric_limits<double>::infinity();

DecodeOptions bild(double fallback, double rollback, int64_t limit) {
  return {.method = "bild", .fallback = fallback, .rollback = rollback, .max_new_tokens = limit};
}

GenerationResult run(const Case& oracles, const DecodeOptions& options) {
  return decode(oracles, options, std::vector<Ids>{{2}})[0];
}

// Small: 2 2 2 then unsure; large: 2 3 2 4 ... The second token is given p = .1 / 4 by the large model.
const Case kHandCase{scripted(6, {{2, 0.9}, {3, 0.9}, {2, 0.9}, {4, 0.9}}),
                     scripted(6, {{2, 0.8}, {2, 0.8}, {2, 0.8}, {5, 0.3}, {5, 0.8}}), 6};

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

struct Thresholds {
  double fallback, rollback;
  int64_t limit, max_draft;
};

struct Written {
  Ids ids;
  int64_t large_runs = 0, rollbacks = 0;
};

// The paper's Algorithm 1, ended at a replacement that is EOS.
class BildProgram {
 public:
  BildProgram(const Case& oracles, const Thresholds& thresholds) : oracles_(oracles), to_(thresholds) {}

  // It stops at an EOS, whoever wrote it, unless ends are verified.
  Written algorithm1(bool effective, bool verify_end) {
    while (true) {
      const size_t first = text_.ids.size();  // pending token
      run_small();
      if (ended() && !verify_end) return text_;
      ++text_.large_runs;
      const bool rolled_back = roll_back(first, effective);
      if (!rolled_back && !ended()) text_.ids.push_back(best(large_at(text_.ids.size())));
      if (ended()) return text_;
    }
  }

 private:
  static int64_t best(const std::vector<double>& p) { return std::max_element(p.begin(), p.end()) - p.begin(); }
  // Returns the large model's probabilities before token m.
  std::vector<double> large_at(size_t m) const {
    return oracles_.target(Ids{2}, Ids(text_.ids.begin(), text_.ids.begin() + static_cast<std::ptrdiff_t>(m)));
  }
  bool distant(size_t m) const { return -std::log(large_at(m)[static_cast<size_t>(text_.ids[m])]) > to_.rollback; }
  bool ended() const { return !text_.ids.empty() && (text_.ids.back() == kEos || std::ssize(text_.ids) == to_.limit); }
  // Lets the small model write until it falls back, has written max_draft tokens or has ended the text.
  void run_small() {
    for (int64_t i = 0; i < to_.max_draft && !ended(); ++i) {
      const auto p = oracles_.drafter(Ids{2}, text_.ids);
      if (*std::max_element(p.begin(), p.end()) < to_.fallback) return;
      text_.ids.push_back(best(p));
    }
  }
  bool roll_back(size_t first, bool effective) {
    for (size_t m = first; m < text_.ids.size(); ++m) {
      if (!distant(m) || (effective && best(large_at(m)) == text_.ids[m])) continue;
      replace_from(m);
      return true;
    }
    return false;
  }
  // Puts the large model's choice in place of token m and of all after it.
  void replace_from(size_t m) {
    const int64_t choice = best(large_at(m));
    text_.ids.resize(m);
    text_.ids.push_back(choice);
    ++text_.rollbacks;
  }

  const Case& oracles_;
  Thresholds to_;
  Written text_;
};

// Calls check(oracles, thresholds) with random models, similar ones and different ones, and random thresholds.
template <class Check>
void for_random_scripts(uint64_t cases, const Check& check) {
  const CounterRandom random(5, 17);
  for (uint64_t i = 0; i < cases; ++i) {
    const auto large = random_oracle(6, 2 * i, 1.8);
    const Case oracles{large, mixture(large, random_oracle(6, 2 * i + 1, 1.8), random.uniform(5 * i)), 6};
    check(oracles, Thresholds{.fallback = 0.2 + 0.5 * random.uniform(5 * i + 1),
                              .rollback = 0.3 + 3 * random.uniform(5 * i + 2),
                              .limit = 1 + static_cast<int64_t>(24 * random.uniform(5 * i + 3)),
                              .max_draft = random.uniform(5 * i + 4) < 0.5 ? 10 : 3});
  }
}

TEST(BildReference, EveryRuleIsAlgorithm1WithEndsFinalOrVerified) {
  for (const bool verify_end : {false, true}) {
    for (const bool effective : {false, true}) {
      int64_t rollbacks = 0;
      for_random_scripts(150, [&](const Case& oracles, const Thresholds& thresholds) {
        DecodeOptions options = bild(thresholds.fallback, thresholds.rollback, thresholds.limit);
        options.max_draft = thresholds.max_draft;
        options.rollback_rule = effective ? "effective" : "literal";
        options.verify_end = verify_end;
        const Written text = BildProgram(oracles, thresholds).algorithm1(effective, verify_end);
        const GenerationResult result = run(oracles, options);
        EXPECT_EQ(result.ids, text.ids);
        EXPECT_EQ(result.stats.target_runs, text.large_runs);
        EXPECT_EQ(result.stats.fallbacks, text.large_runs);
        EXPECT_EQ(result.stats.rollbacks, text.rollbacks);
        rollbacks += text.rollbacks;
      });
      EXPECT_GT(rollbacks, 20);
    }
  }
}

// A model that writes 2, 2 and EOS; the other never ends.
const Case kEnds{scripted(5, {{2, 0.9}, {3, 0.9}, {3, 0.9}, {4, 0.9}}),
                 [](auto, std::span<const int64_t> prefix) { return one_hot(5, prefix.size() < 2 ? 2 : kEos); }, 5};

TEST(BildEnd, AnEosOfTheSmallModelEndsTheTextWithoutARunOfTheTarget) {
  const GenerationResult result = run(kEnds, bild(0.5, 1, 10));
  EXPECT_EQ(result.ids, (Ids{2, 2, kEos}));
  EXPECT_EQ(result.stats.target_runs, 0);
  EXPECT_EQ(result.stats.verifications, 0);
  EXPECT_EQ(result.stats.unverified, 3);
  EXPECT_EQ(result.stats.accepted, 3);
  EXPECT_TRUE(std::isnan(result.stats.acceptance_rate()));
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
  GenerationModels models{.target = &target, .drafter = lookup_drafter(4)};
  // Look-up proposes EOS after 2, as in the source.
  const auto result = Generator(models, options).generate(std::vector<Ids>{{2, kEos, 2, kEos}})[0];
  EXPECT_EQ(result.ids, Ids(8, 2));
  EXPECT_EQ(result.stats.unverified, 0);
}

// Rows end in different rounds, some verified and some not.
TEST(BildEnd, RowsOfABatchEndAsTheyDoAlone) {
  const auto large = random_oracle(6, 3);
  const Case oracles{large, mixture(large, random_oracle(6, 4), 0.5), 6};
  const std::vector<Ids> sources{{2}, {3, 2}, {4}, {5, 5, 5}, {2, 4}, {3}};
  for (const char* rule : {"effective", "literal"}) {
    for (const double temperature : {0.0, 0.9}) {
      DecodeOptions options = bild(0.4, 1.5, 14);
      options.rollback_rule = rule;
      options.temperature = temperature;
      options.num_samples = 3;
      const auto alone = decode(oracles, options, sources);
      options.batch_size = 4;
      const auto together = decode(oracles, options, sources);
      EXPECT_EQ(ids_of(together), ids_of(alone)) << rule << temperature;
      EXPECT_EQ(total(together).target_runs, total(alone).target_runs);
      EXPECT_GT(total(together).unverified, 0);
    }
  }
}

struct Expected {
  EngagementPolicy policy;
  double threshold;
  Ids ids;
  int64_t engaged;
  std::optional<int64_t> changed;
};

// Five ids, of which EOS has no mass: a peak of probability P leaves (1 - P) / 3 to each of the three others.
//
//   position   small's token   large's token   p of the small's token
//      0          2 (.9)          2 (.8)              .8
//      1          3 (.6)          4 (.7)              .1
//      2          4 (.4)          4 (.5)              .5
//      3          2 (.9)          3 (.4)              .2
//
// The oracle replaces tokens that the large model finds unlikely; fallback asks it where the small one is unsure.
TEST(Engagement, IsOfThePolicyAndItsThreshold) {
  constexpr auto kOracle = EngagementPolicy::kOracle, kFallback = EngagementPolicy::kFallback;
  OraclePair hand(
      {scripted(5, {{2, .8}, {4, .7}, {4, .5}, {3, .4}}), scripted(5, {{2, .9}, {3, .6}, {4, .4}, {2, .9}}), 5});
  for (const auto& [policy, threshold, ids, engaged, changed] : {Expected{kOracle, 0, {2, 3, 4, 2}, 0, 0},
                                                                 {kOracle, .15, {2, 4, 4, 2}, 1, 1},
                                                                 {kOracle, .3, {2, 4, 4, 3}, 2, 2},
                                                                 {kOracle, .6, {2, 4, 4, 3}, 3, 2},
                                                                 {kOracle, 1.5, {2, 4, 4, 3}, 4, 2},
                                                                 {kFallback, 0, {2, 3, 4, 2}, 0, std::nullopt},
                                                                 {kFallback, .5, {2, 3, 4, 2}, 1, std::nullopt},
                                                                 {kFallback, .7, {2, 4, 4, 2}, 2, std::nullopt},
                                                                 {kFallback, 1.5, {2, 4, 4, 3}, 4, std::nullopt}}) {
    const EngagedOutputs outputs = engage(hand.models(), {policy, threshold, 4, 1}, std::vector<Ids>{{2}});
    EXPECT_THAT(outputs.ids, ::testing::ElementsAre(ids)) << threshold;
    EXPECT_EQ(outputs.tokens, 4) << threshold;
    EXPECT_EQ(outputs.engaged, engaged) << threshold;
    EXPECT_EQ(outputs.changed, changed) << threshold;
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
