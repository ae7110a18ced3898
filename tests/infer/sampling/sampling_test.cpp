// Warping and draws: against the formulas written down in plain loops, and the CPU's passes over single rows against
// the tensor operations that other devices run; ties, numbers that are not finite, random streams.
#include "infer/sampling/sampling.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/sampling/row_kernels.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

std::vector<double> warp_vector(const std::vector<double>& probabilities, const Warping& warping) {
  const auto p = warp(at::tensor(probabilities, at::kDouble).log(), warping);
  return {p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel()};
}

TEST(Sampling, WarpingFollowsTheFormulas) {
  const auto p = random_oracle(9, 3)(Ids{}, Ids{});
  for (const Warping& warping : {Warping{1, 0, 1}, Warping{0.5, 0, 1}, Warping{2, 3, 1}, Warping{1, 0, 0.6},
                                 Warping{0.7, 5, 0.9}, Warping{1, 0, 1, 0.3}, Warping{0.8, 4, 0.9, 0.5},
                                 Warping{1, 0, 1, 1}, Warping{0, 4, 0.5}, Warping{1, 100, 1}, Warping{1, 0, 1e-9}}) {
    const auto expected = warped(p, warping);
    const auto got = warp_vector(p, warping);
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  }
}

TEST(Sampling, TiesGoToTheLowestIds) {
  const std::vector<double> tied = {0.1, 0.2, 0.2, 0.1, 0.2, 0.2};
  EXPECT_EQ(warp_vector(tied, {1, 3, 1}), (std::vector<double>{0, 1.0 / 3, 1.0 / 3, 0, 1.0 / 3, 0}));
  EXPECT_EQ(warp_vector(tied, {0, 0, 1}), (std::vector<double>{0, 1, 0, 0, 0, 0}));
  const auto nucleus = warp_vector(tied, {1, 0, 0.35});
  EXPECT_NEAR(nucleus[1], 0.5, 1e-12);
  EXPECT_NEAR(nucleus[2], 0.5, 1e-12);
}

TEST(Sampling, TinyTemperaturesTakeTheMostLikely) {
  const auto logits = at::tensor({-3.0, -0.5, -0.5001, -2.0, -9.0}, at::kDouble);
  for (const double temperature : {1e-300, 1e-39, 1e-30, 1e-20}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const auto p = warp(logits.to(dtype), {.temperature = temperature}).to(at::kDouble);
      EXPECT_TRUE(p.equal(at::tensor({0.0, 1.0, 0.0, 0.0, 0.0}, at::kDouble))) << temperature << p;
    }
  }
}

TEST(Sampling, DrawFollowsTheInverseDistributionFunctionAndNeverTakesWeightZero) {
  const auto weights = at::tensor({0.0, 0.5, 0.0, 0.5, 0.0}, at::kDouble).unsqueeze(0).expand({4, 5}).contiguous();
  const auto tokens = draw(weights, at::tensor({0.0, 0.4999, 0.5, 1 - 0x1p-40}, at::kDouble));
  EXPECT_TRUE(tokens.equal(at::tensor({1, 1, 3, 3}, at::kLong))) << tokens;
}

TEST(Sampling, RandomNumbersDifferBySeedLineSampleUseAndPosition) {
  std::set<double> seen;
  for (const uint64_t line : {0, 1}) {
    for (const uint64_t sample : {0, 1}) {
      for (const Draw use : {Draw::kDraft, Draw::kAccept, Draw::kNext}) {
        for (const int64_t position : {0, 1}) seen.insert(RowRandom(1, line, sample).uniform(use, position));
        seen.insert(RowRandom(2, line, sample).uniform(use, 0));
      }
    }
  }
  EXPECT_EQ(seen.size(), 36u);
}

constexpr int64_t kWidths[] = {1, 2, 33, 512, 513, 5000};

const std::vector<Warping> kWarpings = {{1, 0, 1},     {0.7, 0, 1},     {1.5, 0, 1},        {1, 1, 1},
                                        {1, 5, 1},     {1, 40, 1},      {1, 0, 1e-6},       {1, 0, 0.3},
                                        {1, 0, 0.95},  {0.5, 6, 1},     {1.3, 50, 0.9},     {2, 3, 0.5},
                                        {1, 0, 0.999}, {1, 0, 1, 0.05}, {0.7, 40, 0.9, 0.2}};

// Logits [3,width]; every second call has many ties, and some tokens are ruled out.
at::Tensor make_logits(int64_t width, uint64_t seed, bool tied) {
  auto logits = normal_tensor({3, width}, 3, seed, "logits", at::kDouble);
  if (tied) logits = logits.round();
  if (width > 4) logits.narrow(1, 1, width / 4).fill_(-std::numeric_limits<double>::infinity());
  return logits;
}

TEST(RowKernels, WarpEqualsTensorOperations) {
  for (const int64_t width : kWidths) {
    for (const bool tied : {false, true}) {
      const auto logits = make_logits(width, static_cast<uint64_t>(width), tied);
      for (const Warping& warping : kWarpings) {
        const auto expected = tensor_warp(logits, warping);
        EXPECT_TRUE(warp(logits, warping).allclose(expected, 1e-9, 1e-14))
            << width << " T " << warping.temperature << " k " << warping.top_k << " p " << warping.top_p;
        EXPECT_TRUE(warp(logits, warping).gt(0).equal(expected.gt(0)));
      }
    }
  }
}

TEST(RowKernels, TheLargestIsTheFirstAmongEquals) {
  for (const int64_t width : kWidths) {
    const auto logits = make_logits(width, 5, true);
    const auto expected = logits.eq(logits.amax(-1, true)).to(at::kLong).argmax(-1);  // argmax of 0/1: the first 1
    EXPECT_TRUE(most_likely(logits).equal(expected)) << width;
    EXPECT_TRUE(most_likely(logits.to(at::kFloat)).equal(expected)) << width;
    EXPECT_TRUE(tensor_most_likely(logits).equal(expected)) << width;
  }
  EXPECT_EQ(most_likely(at::full({1, 9}, -std::numeric_limits<double>::infinity())).item<int64_t>(), 0);
}

TEST(RowKernels, OneNumberThatIsNotFiniteIsFoundInEveryTypeAndPath) {
  const auto uniform = at::full({1}, 0.5, at::kDouble);
  for (const double broken : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()}) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t place : {0, 5, 40, 599}) {
        const auto logits = at::arange(600, at::kDouble).neg().div(50).unsqueeze(0).to(dtype);
        logits.select(1, place).fill_(broken);
        SCOPED_TRACE(std::to_string(broken) + " " + at::toString(dtype) + " at " + std::to_string(place));
        EXPECT_EQ(most_likely(logits).item<int64_t>(), kNoToken);
        EXPECT_EQ(tensor_most_likely(logits).item<int64_t>(), kNoToken);
        for (const Warping& warping : {Warping{}, Warping{0.5, 3, 1}, Warping{1, 0, 0.5}, Warping{1, 4, 0.5}}) {
          EXPECT_EQ(draw(warp(logits, warping), uniform).item<int64_t>(), kNoToken);
          EXPECT_EQ(tensor_draw(tensor_warp(promoted(logits), warping), uniform).item<int64_t>(), kNoToken);
        }
      }
    }
  }
}

TEST(RowKernels, ConfidenceAndLogProbabilityEqualTensorOperations) {
  for (const int64_t width : kWidths) {
    const auto logits = make_logits(width, 6, false);
    const auto tokens = at::tensor({int64_t{0}, width - 1, width / 2}, at::kLong);
    EXPECT_TRUE(confidence(logits).allclose(logits.softmax(-1).amax(-1), 1e-12));
    EXPECT_TRUE(token_log_probability(logits, tokens)
                    .allclose(logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1), 1e-12));
  }
}

TEST(RowKernels, DrawEqualsTensorOperations) {
  for (const int64_t width : kWidths) {
    const auto weights = make_logits(width, 8, false).softmax(-1);
    for (const double uniform : {0.0, 0.1, 0.5, 0.77, 0.999, 1 - 0x1p-40}) {
      const auto chances = at::full({3}, uniform, at::kDouble);
      EXPECT_TRUE(draw(weights, chances).equal(tensor_draw(weights, chances))) << width << " " << uniform;
    }
  }
}

// Greedy and sampled drafts of 4, 2 and 0 tokens, half of them the target's own choice.
Verification mixed_drafts(std::span<const Row> rows, uint64_t seed, const Warping& warping) {
  const auto logits = normal_tensor({3, 5, 50}, 2, seed, "logits", at::kDouble);
  const auto q = warp(logits + normal_tensor({3, 5, 50}, 0.5, seed, "noise", at::kDouble), warping);
  const auto own = most_likely(logits.narrow(1, 0, 4));
  const auto coin = normal_tensor({3, 4}, 1, seed, "coin", at::kDouble).lt(0.5);  // true for 0.69 of them
  Verification verification{
      rows,    logits, at::where(coin, own, most_likely(q.narrow(1, 0, 4))), at::tensor({4, 2, 0}, at::kLong), {},
      warping, true};
  for (int64_t j = 0; j < 4; ++j) verification.probabilities.push_back(q.select(1, j));
  return verification;
}

void expect_equal_judgements(const Judgement& rows, const Judgement& tensors, const Verification& verification) {
  EXPECT_TRUE(rows.accepted.equal(tensors.accepted)) << rows.accepted << tensors.accepted;
  EXPECT_TRUE(rows.next.equal(tensors.next)) << rows.next << tensors.next;
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t drafted = verification.counts[b].item<int64_t>();
    const int64_t examined = std::min(rows.accepted[b].item<int64_t>() + 1, drafted);
    EXPECT_TRUE(rows.overlap[b].narrow(0, 0, examined).allclose(tensors.overlap[b].narrow(0, 0, examined)));
  }
}

TEST(RowKernels, JudgementsEqualTensorOperations) {
  std::vector<Row> rows(3);
  for (size_t b = 0; b < rows.size(); ++b) rows[b].random = RowRandom(3, b, 0);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const double temperature : {0.0, 0.8}) {
      const Verification verification = mixed_drafts(rows, seed, {.temperature = temperature});
      for (const RollbackRule rule : {RollbackRule::kEffective, RollbackRule::kLiteral}) {
        RollbackAcceptance rollback(1.5, rule);
        expect_equal_judgements(rollback.judge(verification), rollback.judge_tensors(verification), verification);
      }
      if (temperature > 0) {
        RejectionAcceptance rejection;
        expect_equal_judgements(rejection.judge(verification), rejection.judge_tensors(verification), verification);
      } else {
        ExactAcceptance exact;
        expect_equal_judgements(exact.judge(verification), judge_greedy_tensors(verification, -1), verification);
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
