// Speculative sampling puts out the target's distribution: every sequence of a small vocabulary is enumerated, with EOS
// and a length limit, and compared by a chi-square test.
//
// False alarms: a deviate above 4.75 has probability 1e-6 in each comparison (seeds are fixed, so a passing test stays
// passing). Power: with 8,192 samples and about 100 cells, a distribution at a chi-square distance of 0.02 (a total
// variation of about 0.05) is found with probability above .99; the wrong rules below are at more than that.
#include <gtest/gtest.h>

#include "infer/acceptance/rejection.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

class SpeculativeSampling : public ::testing::TestWithParam<double> {};

TEST_P(SpeculativeSampling, OutputDistributionEqualsTarget) {
  for (const int64_t batch : {1, 4}) {
    for (int64_t window = 1; window <= 8; ++window) {
      expect_targets_distribution(resembling_case(), sampling(GetParam(), window, batch),
                                  "window " + std::to_string(window) + ", batch " + std::to_string(batch));
    }
  }
}

TEST_P(SpeculativeSampling, OutputDistributionEqualsTargetWithTopP) {
  for (const int64_t batch : {1, 4}) {
    for (const int64_t window : {1, 3, 8}) {
      DecodeOptions options = sampling(GetParam(), window, batch);
      options.top_p = 0.7;
      expect_targets_distribution(resembling_case(), options,
                                  "window " + std::to_string(window) + ", batch " + std::to_string(batch));
    }
  }
}

TEST_P(SpeculativeSampling, OutputDistributionEqualsTargetWithTopKAndTopP) {
  for (const int64_t batch : {1, 4}) {
    for (const int64_t window : {1, 3, 8}) {
      const std::string what = ", window " + std::to_string(window) + ", batch " + std::to_string(batch);
      DecodeOptions options = sampling(GetParam(), window, batch);
      options.top_k = 2;
      expect_targets_distribution(resembling_case(), options, "top-k 2" + what);
      options.top_k = 3;
      options.top_p = 0.7;
      expect_targets_distribution(resembling_case(), options, "top-k 3, top-p 0.7" + what);
    }
  }
}

TEST_P(SpeculativeSampling, OutputDistributionEqualsTargetWithMinP) {
  for (const int64_t batch : {1, 4}) {
    for (const int64_t window : {1, 3, 8}) {
      const std::string what = ", window " + std::to_string(window) + ", batch " + std::to_string(batch);
      DecodeOptions options = sampling(GetParam(), window, batch);
      options.min_p = 0.4;
      expect_targets_distribution(resembling_case(), options, "min-p 0.4" + what);
      options.top_k = 3;
      expect_targets_distribution(resembling_case(), options, "top-k 3, min-p 0.4" + what);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Temperatures, SpeculativeSampling, ::testing::Values(0.0, 0.7, 1.0, 1.5));

TEST(SpeculativeSamplingCases, EveryWindowRuleKeepsTheDistribution) {
  expect_every_window_rule_keeps_the_distribution(sampling(1.0, 3));
}

TEST(SpeculativeSamplingCases, DrafterWithAPrunedVocabularyKeepsTheDistribution) {
  const Case oracles{random_oracle(4, 1), random_oracle(4, 5, 1.0, {2, 1})};
  expect_targets_distribution(oracles, sampling(1.0, 4), "pruned");
}

TEST(SpeculativeSamplingCases, SinglePrecisionKeepsTheDistribution) {
  Case oracles = resembling_case();
  oracles.dtype = at::kFloat;
  expect_targets_distribution(oracles, sampling(0.7, 3), "fp32");
}

TEST(SpeculativeSamplingCases, PlainSamplingHasTheTargetsDistribution) {
  for (const double temperature : {0.7, 1.0, 1.5}) {
    DecodeOptions options = sampling(temperature, 1);
    options.method = "sample";
    expect_targets_distribution(resembling_case(), options, "temperature " + std::to_string(temperature));
  }
}

TEST(SpeculativeSamplingCases, OutputsDoNotDependOnTheBatch) {
  DecodeOptions options = sampling(1.0, 3);
  options.num_samples = 40;
  const auto batched = decode(resembling_case(), options, sampled_sources());
  options.batch_size = 1;
  const auto alone = decode(resembling_case(), options, sampled_sources());
  ASSERT_EQ(batched.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(batched[i].ids, alone[i].ids);
    EXPECT_EQ(batched[i].stats.accepted_histogram, alone[i].stats.accepted_histogram);
    EXPECT_EQ(batched[i].stats.draft_runs, alone[i].stats.draft_runs);
  }
}

TEST(SpeculativeSamplingCases, SingleRowsHaveTheTargetsDistribution) {
  // One row at a time, through calls of their own: no batch, no shared encoding.
  const Case oracles{random_oracle(3, 11), mixture(random_oracle(3, 11), random_oracle(3, 12), 0.7), 3};
  OracleModel target(oracle_info(3), oracles.target);
  OracleModel drafter(oracle_info(3), oracles.drafter);
  DecodeOptions options = sampling(1.0, 2);
  options.num_samples = 1;
  options.batch_size = 1;
  options.max_new_tokens = 2;
  Generator generator({.target = &target, .drafter = as_drafter(drafter), .generation = {}}, options);
  std::vector<GenerationResult> results;
  for (uint64_t line = 0; line < 3000; ++line) {
    results.push_back(generator.generate(std::vector<Ids>{{2}}, line)[0]);
  }
  EXPECT_LT(chi_square_deviate(enumerate(oracles.target, {2}, {}, 2), count_sequences(results)), kAlarm);
}

// --- wrong rules that the test must find ---

// After a rejection draws from p instead of norm(max(0, p - q)).
class NoResidual : public RejectionAcceptance {
 public:
  Judgement judge(const Verification& verification) override {
    Judgement judgement = RejectionAcceptance::judge(verification);
    judgement.next = target_token(verification, judgement.accepted);
    return judgement;
  }
};

TEST(SpeculativeSamplingCases, TestFindsWrongAcceptanceRules) {
  EXPECT_LT(deviate_of(std::make_unique<RejectionAcceptance>()), kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<NoResidual>()), 2 * kAlarm);
  EXPECT_GT(deviate_of(std::make_unique<TooGenerous>(0.8)), 2 * kAlarm);
}

// Why window rules never drop a token that was sampled: the acceptance rule alone, on drafts that lack the tokens which
// the drafter found unlikely.
TEST(SpeculativeSamplingCases, DroppingSampledTokensBiasesTheOutputAsMethodsSays) {
  // q = (.9, .1), p = (.5, .5), dropping tokens with q < .4: P(a) = .55 instead of .5.
  constexpr int64_t kRows = 20000;
  std::vector<Row> rows(kRows);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].random = RowRandom(1, i, 0);
  const at::Tensor q = at::tensor({0.9, 0.1}, at::kDouble).expand({kRows, 2}).contiguous();
  const at::Tensor tokens = draw(q, uniforms(rows, Draw::kDraft, 0, 1, at::kCPU).squeeze(1)).unsqueeze(1);  // [B,1]
  const auto first_a = [&](const at::Tensor& counts) {
    const Verification verification{.rows = rows,
                                    .logits = at::zeros({kRows, 2, 2}, at::kDouble),
                                    .tokens = tokens,
                                    .counts = counts,
                                    .probabilities = {q},
                                    .warping = {}};
    const Judgement judgement = RejectionAcceptance().judge(verification);
    const at::Tensor first = at::where(judgement.accepted.gt(0), tokens.squeeze(1), judgement.next);
    return first.eq(0).to(at::kDouble).mean().item<double>();
  };
  // Standard error .0035: .55 is 14 of them away from .5.
  EXPECT_NEAR(first_a(at::ones({kRows}, at::kLong)), 0.5, 0.0175);
  EXPECT_NEAR(first_a(q.gather(1, tokens).squeeze(1).ge(0.4).to(at::kLong)), 0.55, 0.0175);
}

}  // namespace
}  // namespace draftsmith::infer::testing
