// The test of first tokens: right samples pass, wrong rules are found. An alarm is one in a million.
#include "evaluate/results/first_token_test.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/decisions.h"
#include "tests/support/distribution_tests.h"

namespace draftsmith::evaluate {
namespace {

TokenMass mass_of(const std::vector<double>& falling, size_t token) {
  TokenMass mass;
  for (size_t id = 0; id < token; ++id) mass.before += falling[id];
  mass.own = falling[token];
  return mass;
}

// Returns a token drawn from `drawn`, as its place in `expected`.
TokenMass drawn_mass(const std::vector<double>& expected, const std::vector<double>& drawn, double uniform) {
  size_t token = 0;
  while (token + 1 < drawn.size() && uniform >= drawn[token]) uniform -= drawn[token++];
  return mass_of(expected, token);
}

// Distributions of lines that are nearly sure, undecided, and between.
const std::vector<std::vector<double>> kLines{{0.97, 0.02, 0.01}, {0.25, 0.25, 0.25, 0.25}, {0.5, 0.3, 0.15, 0.05}};

TEST(FirstTokenTest, SamplesOfTheRightDistributionPassWithEverySeed) {
  int64_t below_5_percent = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const CounterRandom random(seed, "tokens");
    std::vector<TokenMass> tokens;
    for (uint64_t i = 0; i < 300; ++i) {
      tokens.push_back(drawn_mass(kLines[i % 3], kLines[i % 3], random.uniform(i)));
    }
    const FirstTokenTest test = test_first_tokens(tokens, seed, "speculative");
    EXPECT_TRUE(test.passed) << seed << ": " << test.p_value;
    EXPECT_EQ(test.tokens, 300);
    below_5_percent += test.p_value < 0.05 ? 1 : 0;
  }
  EXPECT_LE(below_5_percent, 13);  // 5 expected at most; more than 13 happen once in two thousand
}

TEST(FirstTokenTest, GreedyTokensFailFrom30On) {
  std::vector<TokenMass> tokens(30, {.before = 0, .own = 0.5});
  EXPECT_FALSE(test_first_tokens(tokens, 1, "greedy").passed);
  tokens.assign(7, {.before = 0, .own = 0.01});
  EXPECT_TRUE(test_first_tokens(tokens, 1, "few").passed);
  tokens.assign(8, {.before = 0, .own = 0.01});
  EXPECT_FALSE(test_first_tokens(tokens, 1, "few").passed);
}

// At a distance of 0.25 the expected p-value of 200 tokens is 3e-11.
TEST(FirstTokenTest, AnotherDistributionIsFound) {
  const std::vector<double> drafter{0.25, 0.3, 0.25, 0.2};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const CounterRandom random(seed, "tokens");
    std::vector<TokenMass> tokens;
    for (uint64_t i = 0; i < 200; ++i) tokens.push_back(drawn_mass(kLines[2], drafter, random.uniform(i)));
    EXPECT_FALSE(test_first_tokens(tokens, seed, "drafter").passed) << seed;
  }
}

TEST(FirstTokenTest, ImpossibleTokensFail) {
  const std::vector<TokenMass> tokens(20, {.before = 1, .own = 0});
  EXPECT_FALSE(test_first_tokens(tokens, 1, "impossible").passed);
  EXPECT_EQ(test_first_tokens({}, 1, "none").p_value, 1);
}

// Returns the test of the first tokens that an acceptance rule puts out, 2,048 for each of four sources.
FirstTokenTest test_of_rule(std::unique_ptr<infer::AcceptanceRule> rule) {
  using namespace infer::testing;  // NOLINT(google-build-using-namespace)
  const infer::OracleFunction target = random_oracle(6, 3);
  infer::OracleModel large(oracle_info(6), target);
  infer::OracleModel small(oracle_info(6), mixture(target, random_oracle(6, 5), 0.7));
  infer::GenerationModels models;
  models.target = &large;
  models.drafter = infer::as_drafter(small);
  const infer::DecodeOptions options = sampling(1, 3);
  infer::DraftParts parts = infer::make_parts(options, models.drafter->make(models.draft_target()));
  if (rule != nullptr) parts.acceptance = std::move(rule);
  infer::Generator generator(models, options, std::move(parts));
  const std::vector<Ids>& sources = sampled_sources();
  const auto results = generator.generate(sources);
  const std::vector<Ids> none(sources.size());
  const at::Tensor p = infer::decision_probabilities(generator, models, {sources, none});
  std::vector<TokenMass> tokens;
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor line = p[static_cast<int64_t>(i) / options.num_samples];
    const at::Tensor own = line[results[i].ids.front()];
    tokens.push_back({line.masked_select(line.gt(own)).sum().item<double>(), own.item<double>()});
  }
  return test_first_tokens(tokens, 1, "rule");
}

TEST(FirstTokenTest, FindsARuleThatAcceptsTooMuch) {
  EXPECT_TRUE(test_of_rule(nullptr).passed);
  EXPECT_FALSE(test_of_rule(std::make_unique<infer::testing::TooGenerous>(0.3)).passed);
}

}  // namespace
}  // namespace draftsmith::evaluate
