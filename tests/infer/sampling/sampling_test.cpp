// Warping against the formulas written down in plain loops, ties, draws and random streams.
#include <set>

#include <gtest/gtest.h>

#include "infer/forced/forced_alpha.h"
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

TEST(Sampling, RandomNumbersDifferByLineSampleUseAndPosition) {
  std::set<double> seen;
  for (const uint64_t line : {0, 1}) {
    for (const uint64_t sample : {0, 1}) {
      for (const Draw use : {Draw::kDraft, Draw::kAccept, Draw::kNext}) {
        for (const int64_t position : {0, 1}) seen.insert(RowRandom(1, line, sample).uniform(use, position));
      }
    }
  }
  EXPECT_EQ(seen.size(), 24u);
}

TEST(Sampling, ForcedOutputsSayHowWellEachModelPredictsThem) {
  const auto p = random_oracle(5, 1);
  const auto q = random_oracle(5, 2);
  OracleModel target(oracle_info(5), p);
  OracleModel drafter(oracle_info(5), q);
  const std::vector<Ids> sources = {{2, 3}, {}, {4}};
  const std::vector<Ids> outputs = {{2, 4, 1}, {3, 3, 3, 3, 1}, {}};
  const auto expected = [&](const auto& oracle) {
    PredictionQuality quality;
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t t = 0; t < outputs[i].size(); ++t) {
        const auto probabilities = warped(oracle(sources[i], std::span(outputs[i].data(), t)), Warping{1, 0, 1});
        const auto best = std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
        quality.accuracy += best == outputs[i][t] ? 1.0 / 8 : 0;
        quality.cross_entropy -= std::log(probabilities[static_cast<size_t>(outputs[i][t])]) / 8;
      }
    }
    return quality;
  };
  const auto forced = measure_forced_alpha({target, drafter}, sources, outputs, {.temperature = 0}, 2);
  EXPECT_NEAR(forced.target.accuracy, expected(p).accuracy, 1e-12);
  EXPECT_NEAR(forced.target.cross_entropy, expected(p).cross_entropy, 1e-9);
  EXPECT_NEAR(forced.drafter.accuracy, expected(q).accuracy, 1e-12);
  EXPECT_NEAR(forced.drafter.cross_entropy, expected(q).cross_entropy, 1e-9);
}

TEST(Sampling, ForcedAlphaIsTheMeanOverlapOnTheGivenOutputs) {
  const auto p = random_oracle(5, 1);
  const auto q = random_oracle(5, 2);
  OracleModel target(oracle_info(5), p);
  OracleModel drafter(oracle_info(5), q);
  const std::vector<Ids> sources = {{2, 3}, {}, {4}};
  const std::vector<Ids> outputs = {{2, 4, 1}, {3, 3, 3, 3, 1}, {}};
  for (const Warping& warping : {Warping{1, 0, 1}, Warping{0.7, 3, 1}, Warping{0, 0, 1}}) {
    double expected = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t t = 0; t < outputs[i].size(); ++t) {
        const auto a = warped(p(sources[i], std::span(outputs[i].data(), t)), warping);
        const auto b = warped(q(sources[i], std::span(outputs[i].data(), t)), warping);
        for (size_t x = 0; x < a.size(); ++x) expected += std::min(a[x], b[x]) / 8;
      }
    }
    const auto forced = measure_forced_alpha({target, drafter}, sources, outputs, warping, 2);
    EXPECT_EQ(forced.positions, 8);
    EXPECT_NEAR(forced.alpha, expected, 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
