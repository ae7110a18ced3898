// Block verification: the target's distribution, by the same enumeration as speculative sampling's, and longer drafts.
#include "infer/acceptance/block.h"

#include <gtest/gtest.h>

#include "tests/infer/acceptance/judged_rows.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

DecodeOptions block_sampling(double temperature, int64_t window, int64_t batch = 4) {
  DecodeOptions options = sampling(temperature, window, batch);
  options.acceptance = "block";
  return options;
}

class BlockVerification : public ::testing::TestWithParam<double> {};

INSTANTIATE_TEST_SUITE_P(Temperatures, BlockVerification, ::testing::Values(0.0, 0.7, 1.0, 1.5));

TEST_P(BlockVerification, OutputDistributionEqualsTarget) {
  for (const int64_t batch : {1, 4}) {
    for (int64_t window = 1; window <= 8; ++window) {
      expect_targets_distribution(resembling_case(), block_sampling(GetParam(), window, batch),
                                  "window " + std::to_string(window) + ", batch " + std::to_string(batch));
    }
  }
}

TEST_P(BlockVerification, OutputDistributionEqualsTargetWithTruncation) {
  for (const int64_t window : {1, 3, 8}) {
    DecodeOptions options = block_sampling(GetParam(), window);
    options.top_k = 3;
    options.top_p = 0.7;
    expect_targets_distribution(resembling_case(), options, "window " + std::to_string(window));
  }
}

TEST(BlockVerificationCases, EveryWindowRuleKeepsTheDistribution) {
  expect_every_window_rule_keeps_the_distribution(block_sampling(1.0, 3));
}

TEST(BlockVerificationCases, SinglePrecisionAndPrunedVocabulariesKeepTheDistribution) {
  Case oracles = resembling_case();
  oracles.dtype = at::kFloat;
  expect_targets_distribution(oracles, block_sampling(0.7, 3), "fp32");
  expect_targets_distribution({random_oracle(4, 1), random_oracle(4, 5, 1.0, {2, 1})}, block_sampling(1.0, 4),
                              "pruned");
}

TEST(BlockVerificationCases, OutputsDoNotDependOnTheBatch) {
  DecodeOptions options = block_sampling(1.0, 3);
  options.num_samples = 40;
  const auto batched = decode(resembling_case(), options, sampled_sources());
  options.batch_size = 1;
  const auto alone = decode(resembling_case(), options, sampled_sources());
  ASSERT_EQ(batched.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(batched[i].ids, alone[i].ids);
}

// After a prefix draws from p instead of norm(max(0, p_i p - q)).
class BlockWithoutResidual : public BlockAcceptance {
 public:
  Judgement judge(const Verification& verification) override {
    Judgement judgement = BlockAcceptance::judge(verification);
    judgement.next = target_token(verification, judgement.accepted);
    return judgement;
  }
};

// Whether a token stays depends on later ones, so a discarded draft's numbers must not be drawn again.
TEST(BlockVerificationCases, EachRoundHasNumbersOfItsOwn) {
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

TEST(BlockVerificationCases, TheTestFindsWrongRules) {
  EXPECT_LT(deviate_of(std::make_unique<BlockAcceptance>()), kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<BlockWithoutResidual>()), 2 * kAlarm);
}

// The paper's theorem 2, on 20,000 drafts: never fewer tokens on average.
TEST(BlockVerificationCases, KeepsMoreTokensThanRejection) {
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

TEST(BlockVerificationCases, RowsAndTensorsJudgeAlike) {
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

TEST(BlockVerificationCases, LogitsThatAreNoNumbersAreNeverKept) {
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

}  // namespace
}  // namespace draftsmith::infer::testing
