// Acceptance rules. Lossless ones put out the target's distribution: every sequence of a small vocabulary is
// enumerated, with EOS and a length limit, and compared by a chi-square test. With a lenience
// the output is what it aims at.
//
// False alarms: a deviate above 4.75 has probability 1e-6 in each comparison (seeds are fixed, so a passing test stays
// passing). Power: with 8,192 samples and about 100 cells, a distribution at a chi-square distance of 0.02 (a total
// variation of about 0.05) is found with probability above .99; the wrong rules below are at more than that.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/acceptance/acceptance_rules.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

// A verification and what it refers to.
struct JudgedRows {
  std::vector<Row> rows;
  Verification verification;
};

// Returns rows whose drafts were drawn from q of the same `positions` for all: logits of p are [G+1,V], of q [G,V].
// Row b drafts counts[b % counts.size()] tokens.
JudgedRows judged_rows(int64_t rows, const at::Tensor& p, const at::Tensor& q, const std::vector<int64_t>& counts,
                       const Warping& warping = {}) {
  JudgedRows made;
  const int64_t window = q.size(0);
  std::vector<int64_t> drafted;
  for (int64_t b = 0; b < rows; ++b) {
    made.rows.emplace_back();
    made.rows.back().random = RowRandom(1, static_cast<uint64_t>(b), 0);
    drafted.push_back(counts[static_cast<size_t>(b) % counts.size()]);
  }
  Verification& verification = made.verification;
  std::vector<at::Tensor> tokens;
  for (int64_t j = 0; j < window; ++j) {
    const at::Tensor logits = q[j].expand({rows, q.size(1)});
    const at::Tensor weights = warp(logits, warping).contiguous();
    verification.probabilities.push_back(weights);
    tokens.push_back(warping.greedy() ? most_likely(logits)
                                      : draw(weights, uniforms(made.rows, Draw::kDraft, j, 1, at::kCPU).squeeze(1)));
  }
  verification.rows = made.rows;
  verification.logits = p.unsqueeze(0).expand({rows, window + 1, p.size(1)}).contiguous();
  verification.tokens = at::stack(tokens, 1);
  verification.counts = to_device(drafted, {rows}, at::kCPU);
  verification.warping = warping;
  verification.measure_overlap = true;
  return made;
}

// Returns each id's share of the first new tokens: those kept, or the target's after nothing was.
std::vector<double> shares_of_first(const JudgedRows& judged, const Judgement& judgement) {
  const auto first =
      at::where(judgement.accepted.gt(0), judged.verification.tokens.select(1, 0), judgement.next);  // [B]
  std::vector<double> shares;
  for (int64_t id = 0; id < judged.verification.logits.size(2); ++id) {
    shares.push_back(first.eq(id).to(at::kDouble).mean().item<double>());
  }
  return shares;
}

class LosslessSampling : public ::testing::TestWithParam<std::string> {
 protected:
  static DecodeOptions options(double temperature, int64_t window, int64_t batch = 4) {
    DecodeOptions options = sampling(temperature, window, batch);
    options.acceptance = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Rules, LosslessSampling, ::testing::Values("rejection", "block"),
                         [](const auto& rule) { return rule.param; });

TEST_P(LosslessSampling, OutputDistributionEqualsTarget) {
  for (const double temperature : {0.0, 0.7, 1.0, 1.5}) {
    for (const int64_t window : {1, 2, 3, 8}) {
      for (const int64_t batch : {1, 4}) {
        expect_targets_distribution(resembling_case(), options(temperature, window, batch),
                                    "temperature " + std::to_string(temperature) + ", window " +
                                        std::to_string(window) + ", batch " + std::to_string(batch));
      }
    }
  }
}

TEST_P(LosslessSampling, OutputDistributionEqualsTargetWithTruncation) {
  for (const Warping& cut : {Warping{.top_p = 0.7}, Warping{.top_k = 2}, Warping{.top_k = 3, .top_p = 0.7},
                             Warping{.min_p = 0.4}, Warping{.top_k = 3, .min_p = 0.4}}) {
    for (const double temperature : {0.7, 1.5}) {
      for (const int64_t window : {1, 3, 8}) {
        DecodeOptions truncated = options(temperature, window);
        truncated.top_k = cut.top_k;
        truncated.top_p = cut.top_p;
        truncated.min_p = cut.min_p;
        expect_targets_distribution(resembling_case(), truncated,
                                    "top-k " + std::to_string(cut.top_k) + ", top-p " + std::to_string(cut.top_p) +
                                        ", min-p " + std::to_string(cut.min_p) + ", window " + std::to_string(window));
      }
    }
  }
}

TEST_P(LosslessSampling, EveryWindowRuleKeepsTheDistribution) {
  expect_every_window_rule_keeps_the_distribution(options(1.0, 3));
}

TEST_P(LosslessSampling, SinglePrecisionAndPrunedVocabulariesKeepTheDistribution) {
  Case oracles = resembling_case();
  oracles.dtype = at::kFloat;
  expect_targets_distribution(oracles, options(0.7, 3), "fp32");
  expect_targets_distribution({random_oracle(4, 1), random_oracle(4, 5, 1.0, {2, 1})}, options(1.0, 4), "pruned");
}

TEST_P(LosslessSampling, OutputsDoNotDependOnTheBatch) {
  DecodeOptions batched = options(1.0, 3);
  batched.num_samples = 40;
  const auto together = decode(resembling_case(), batched, sampled_sources());
  batched.batch_size = 1;
  const auto alone = decode(resembling_case(), batched, sampled_sources());
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i].ids, alone[i].ids);
    EXPECT_EQ(together[i].stats.accepted_histogram, alone[i].stats.accepted_histogram);
    EXPECT_EQ(together[i].stats.draft_runs, alone[i].stats.draft_runs);
  }
}

TEST(PlainSampling, HasTheTargetsDistribution) {
  DecodeOptions options = sampling(0.7, 1);
  options.method = "sample";
  expect_targets_distribution(resembling_case(), options, "sample");
}

// A wrong rule: after a prefix draws from p instead of from what is left of it.
template <class Rule>
class WithoutResidual : public Rule {
 public:
  Judgement judge(const Verification& verification) override {
    Judgement judgement = Rule::judge(verification);
    judgement.next = target_token(verification, judgement.accepted);
    return judgement;
  }
};

TEST(LosslessRules, TheTestFindsWrongOnes) {
  EXPECT_LT(deviate_of(std::make_unique<RejectionAcceptance>()), kAlarm);
  EXPECT_LT(deviate_of(std::make_unique<BlockAcceptance>()), kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<WithoutResidual<RejectionAcceptance>>()), 2 * kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<WithoutResidual<BlockAcceptance>>()), 2 * kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<TooGenerous>(0.8)), 2 * kAlarm);
}

// Why window rules never drop a token that was sampled: q = (.9, .1), p = (.5, .5), dropping tokens with q < .4 gives
// P(a) = .55 instead of .5, as methods.md says. A standard error is .0035: 14 of them lie between.
TEST(LosslessRules, DroppingSampledTokensBiasesTheOutput) {
  JudgedRows judged =
      judged_rows(20000, at::zeros({2, 2}, at::kDouble), at::tensor({0.9, 0.1}, at::kDouble).log().unsqueeze(0), {1});
  const auto first_a = [&] { return shares_of_first(judged, RejectionAcceptance().judge(judged.verification))[0]; };
  EXPECT_NEAR(first_a(), 0.5, 0.0175);
  judged.verification.counts = judged.verification.tokens.squeeze(1).eq(0).to(at::kLong);
  EXPECT_NEAR(first_a(), 0.55, 0.0175);
}

// Whether a token stays depends on later ones, so a discarded draft's numbers must not be drawn again.
TEST(BlockVerification, EachRoundHasNumbersOfItsOwn) {
  RowRandom numbers(1, 2, 0);
  const double first = numbers.uniform(Draw::kDraft, 5);
  numbers.begin_round(3);
  const double second = numbers.uniform(Draw::kDraft, 5);
  EXPECT_NE(first, second);
  numbers.begin_round(4);
  EXPECT_NE(numbers.uniform(Draw::kDraft, 5), second);
  numbers.begin_round(3);
  EXPECT_EQ(numbers.uniform(Draw::kDraft, 5), second);
  EXPECT_TRUE(BlockAcceptance().traits().looks_ahead);
}

// The paper's theorem 2, on 20,000 drafts: never fewer tokens on average.
TEST(BlockVerification, KeepsMoreTokensThanRejection) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const at::Tensor p = random_tensor({7, 6}, 2 * seed, at::kDouble);
    const at::Tensor q = p.narrow(0, 0, 6) + random_tensor({6, 6}, 2 * seed + 1, at::kDouble);
    const JudgedRows judged = judged_rows(20000, p, q, {6, 5, 2});
    const auto mean = [](const Judgement& judgement) {
      return judgement.accepted.to(at::kDouble).mean().item<double>();
    };
    const double block = mean(BlockAcceptance().judge(judged.verification));
    const double rejection = mean(RejectionAcceptance().judge(judged.verification));
    EXPECT_GT(block, rejection) << "seed " << seed;
  }
}

TEST(BlockVerification, RowsAndTensorsJudgeAlike) {
  const at::Tensor p = random_tensor({5, 9}, 1, at::kDouble);
  const at::Tensor q = p.narrow(0, 0, 4) + random_tensor({4, 9}, 2, at::kDouble);
  for (const Warping& warping : {Warping{}, Warping{.temperature = 0.7, .top_k = 4}}) {
    const JudgedRows judged = judged_rows(500, p, q, {4, 0, 1, 3}, warping);
    const Judgement rows = BlockAcceptance().judge(judged.verification);
    const Judgement tensors = BlockAcceptance().judge_tensors(judged.verification);
    EXPECT_TRUE(at::equal(rows.accepted, tensors.accepted));
    EXPECT_TRUE(at::equal(rows.next, tensors.next));
    EXPECT_GT(rows.accepted.sum().item<int64_t>(), 0);
  }
}

TEST(BlockVerification, LogitsThatAreNoNumbersAreNeverKept) {
  at::Tensor p = random_tensor({4, 5}, 1, at::kDouble);
  const at::Tensor q = p.narrow(0, 0, 3).clone();
  p[1].fill_(std::nan(""));
  const JudgedRows judged = judged_rows(200, p, q, {3});
  for (const Judgement& judgement :
       {BlockAcceptance().judge(judged.verification), BlockAcceptance().judge_tensors(judged.verification)}) {
    EXPECT_LE(judgement.accepted.max().item<int64_t>(), 1);
    EXPECT_TRUE(judgement.next.masked_select(judgement.accepted.eq(1)).eq(kNoToken).all().item<bool>());
  }
}

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
