// Acceptance rules that give up the target's distribution for speed: lenience, typical, cascade.
#include <cmath>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/acceptance/cascade.h"
#include "infer/acceptance/rejection.h"
#include "infer/acceptance/typical.h"
#include "tests/infer/acceptance/judged_rows.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using Distribution = std::vector<double>;

// Rows of one drafted token, from distributions of four ids.
const Distribution kTarget = {0.5, 0.3, 0.15, 0.05};
const Distribution kDrafter = {0.2, 0.6, 0.15, 0.05};
constexpr int64_t kDrafts = 40000;
constexpr double kTolerance = 0.0125;  // five standard errors of a share of one half

at::Tensor logits_of(const std::vector<Distribution>& positions) {
  std::vector<at::Tensor> rows;
  for (const Distribution& p : positions) rows.push_back(at::tensor(p, at::kDouble).log());
  return at::stack(rows);
}

JudgedRows one_token(const Warping& warping = {}) {
  return judged_rows(kDrafts, logits_of({kTarget, kTarget}), logits_of({kDrafter}), {1}, warping);
}

void expect_shares(const JudgedRows& judged, const Judgement& judgement, const Distribution& expected,
                   const std::string& what) {
  const std::vector<double> shares = shares_of_first(judged, judgement);
  for (size_t id = 0; id < expected.size(); ++id)
    EXPECT_NEAR(shares[id], expected[id], kTolerance) << what << " " << id;
}

// What a rule that aims at pi gives: speculative sampling is exact for any target distribution.
TEST(Cascade, GivesTheDistributionOfItsDeferralRule) {
  const JudgedRows judged = one_token();
  const auto expect = [&](Deferral deferral, double alpha, const Distribution& pi, const std::string& what) {
    expect_shares(judged, CascadeAcceptance(deferral, alpha).judge(judged.verification), pi, what);
  };
  expect(Deferral::kChow, 0.41, kDrafter, "chow trusts: .6 >= .59");
  expect(Deferral::kChow, 0.3, kTarget, "chow defers: .6 < .7");
  expect(Deferral::kDiff, 0, kDrafter, "diff trusts: .6 >= .5");
  expect(Deferral::kOpt, 0.1, kDrafter, "opt trusts");
  // Tokens of p < .3 are not trusted, q has .2 there: pi = q [p >= .3] + .2 p.
  expect(Deferral::kToken, 0.45, {0.2 + 0.1, 0.6 + 0.06, 0.03, 0.01}, "token");
  expect(Deferral::kToken, 0, {0.2 + 0.4, 0.24, 0.12, 0.04}, "token trusts the most likely alone");
}

TEST(Cascade, DefersWhereTheDrafterIsLessSureByMoreThanItsCost) {
  // max p .5, max q .4, total variation .2.
  const JudgedRows judged = judged_rows(kDrafts, logits_of({kTarget, kTarget}), logits_of({{0.3, 0.4, 0.2, 0.1}}), {1});
  const auto first = [&](Deferral deferral, double alpha) {
    return shares_of_first(judged, CascadeAcceptance(deferral, alpha).judge(judged.verification))[0];
  };
  EXPECT_NEAR(first(Deferral::kDiff, 0.05), 0.5, kTolerance);
  EXPECT_NEAR(first(Deferral::kDiff, 0.15), 0.3, kTolerance);
  EXPECT_NEAR(first(Deferral::kOpt, 0.4), 0.5, kTolerance);  // cost .08
  EXPECT_NEAR(first(Deferral::kOpt, 0.6), 0.3, kTolerance);  // cost .12
}

TEST(Cascade, GreedyDecodingKeepsTrustedTokensAndTheTargetsOwn) {
  const JudgedRows judged =
      judged_rows(1, logits_of({kTarget, kTarget}), logits_of({kDrafter}), {1}, {.temperature = 0});
  const auto judge = [&](Deferral deferral, double alpha) {
    return CascadeAcceptance(deferral, alpha).judge(judged.verification);
  };
  EXPECT_EQ(judge(Deferral::kChow, 0.3).accepted.item<int64_t>(), 0);
  EXPECT_EQ(judge(Deferral::kChow, 0.3).next.item<int64_t>(), 0);
  EXPECT_EQ(judge(Deferral::kChow, 0.41).accepted.item<int64_t>(), 1);
  EXPECT_EQ(judge(Deferral::kDiff, 0).accepted.item<int64_t>(), 1);
  EXPECT_EQ(judge(Deferral::kToken, 0.3).accepted.item<int64_t>(), 0);  // p .3 of the drafted token, limit .35
  EXPECT_EQ(judge(Deferral::kToken, 0.5).accepted.item<int64_t>(), 1);
  const JudgedRows own = judged_rows(1, logits_of({kTarget, kTarget}), logits_of({kTarget}), {1}, {.temperature = 0});
  EXPECT_EQ(CascadeAcceptance(Deferral::kChow, 0).judge(own.verification).accepted.item<int64_t>(), 1);
}

TEST(Cascade, OneThatNeverTrustsIsSpeculativeSampling) {
  DecodeOptions options = sampling(1.0, 3);
  options.acceptance = "cascade";
  options.deferral = "chow";
  options.deferral_cost = 0;
  expect_targets_distribution(resembling_case(), options, "chow 0");
}

TEST(Cascade, LogitsThatAreNoNumbersAreNeverTrusted) {
  for (const double temperature : {0.0, 1.0}) {
    at::Tensor p = logits_of({kTarget, kTarget});
    p[0].fill_(std::nan(""));
    const JudgedRows judged = judged_rows(50, p, logits_of({kDrafter}), {1}, {.temperature = temperature});
    for (const Deferral deferral : {Deferral::kChow, Deferral::kDiff, Deferral::kOpt, Deferral::kToken}) {
      const Judgement judgement = CascadeAcceptance(deferral, 1).judge(judged.verification);
      EXPECT_EQ(judgement.accepted.max().item<int64_t>(), 0);
      EXPECT_TRUE(judgement.next.eq(kNoToken).all().item<bool>());
    }
  }
}

TEST(Typical, KeepsWhatIsLikelyForTheTargetsEntropy) {
  // H of kTarget is 1.1421 nats, e^-H .3192.
  const auto accepts = [](double epsilon, double delta, int64_t id) {
    Distribution drafter(4, 0.0);
    drafter[static_cast<size_t>(id)] = 1;
    const JudgedRows judged = judged_rows(1, logits_of({kTarget, kTarget}), logits_of({drafter}), {1});
    const TypicalAcceptance rule(epsilon, delta);
    const int64_t accepted = rule.judge_tensors(judged.verification).accepted.item<int64_t>();
    EXPECT_EQ(TypicalAcceptance(rule).judge(judged.verification).accepted.item<int64_t>(), accepted);
    return accepted == 1;
  };
  EXPECT_TRUE(accepts(0.14, 1, 2));     // .15 > min(.14, .319)
  EXPECT_FALSE(accepts(0.16, 1, 2));    // .15 < min(.16, .319)
  EXPECT_TRUE(accepts(0.9, 0.45, 2));   // .15 > .1436
  EXPECT_FALSE(accepts(0.9, 0.48, 2));  // .15 < .1532
}

TEST(Typical, AtTemperatureZeroIsTheTargetsOwnOutput) {
  DecodeOptions options = sampling(0, 3);
  options.num_samples = 1;
  options.acceptance = "typical";
  const auto typical = decode(resembling_case(), options, sampled_sources());
  options.method = "greedy";
  options.acceptance = "";
  const auto greedy = decode(resembling_case(), options, sampled_sources());
  for (size_t i = 0; i < greedy.size(); ++i) EXPECT_EQ(typical[i].ids, greedy[i].ids);
}

TEST(Lenience, CountsTheDraftersProbabilityLess) {
  const JudgedRows judged = one_token();
  // l = .5: id 1 is kept with probability .3/(.5 .6) = 1, so the output is the draft.
  expect_shares(judged, RejectionAcceptance(0.5).judge(judged.verification), kDrafter, "l .5");
  // l = .8: id 1 is kept with probability .625; the residual max(0, p - .8 q) is .34, 0, .03, .01.
  const double rejected = 0.6 * (1 - 0.625);
  const Distribution expected = {0.2 + rejected * 0.34 / 0.38, 0.6 - rejected, 0.15 + rejected * 0.03 / 0.38,
                                 0.05 + rejected * 0.01 / 0.38};
  expect_shares(judged, RejectionAcceptance(0.8).judge(judged.verification), expected, "l .8");
  expect_shares(judged, RejectionAcceptance(0.8).judge_tensors(judged.verification), expected, "l .8 in tensors");
  EXPECT_FALSE(RejectionAcceptance(0.8).traits().lossless);
  EXPECT_TRUE(RejectionAcceptance(1).traits().lossless);
}

TEST(Lenience, GreedyDecodingKeepsTokensNearTheMostLikely) {
  const JudgedRows judged =
      judged_rows(1, logits_of({kTarget, kTarget}), logits_of({kDrafter}), {1}, {.temperature = 0});
  const auto accepted = [&](double lenience) {
    return RejectionAcceptance(lenience).judge(judged.verification).accepted.item<int64_t>();
  };
  EXPECT_EQ(accepted(0.59), 1);  // .3 / .5 = .6
  EXPECT_EQ(accepted(0.61), 0);
  EXPECT_EQ(accepted(1), 0);
}

}  // namespace
}  // namespace draftsmith::infer::testing
