// The window that drafts on while it pays.
#include "infer/windows/goodput.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/distribution_tests.h"

namespace draftsmith::infer::testing {
namespace {

// Returns the number of tokens drafted when the drafter gives each token the probability `sure`.
int64_t drafted(double sure, GoodputWindow& window) {
  const at::Tensor logits = at::tensor({std::log(sure), std::log1p(-sure)}, at::kDouble).unsqueeze(0);
  const at::Tensor tokens = at::zeros({1}, at::kLong);
  for (int64_t k = 1;; ++k) {
    if (k == window.maximum() || !window.go_on({logits, tokens, {}}).item<bool>()) return k;
  }
}

int64_t drafted(double token_cost, double sure) {
  GoodputWindow window(token_cost, 20);
  window.begin(std::vector<Row>(1));
  return drafted(sure, window);
}

// The k from 1 on that maximises (1 + S_1 + ... + S_k) / (1 + k m) for S_i = sure^i.
int64_t best_window(double token_cost, double sure) {
  int64_t best = 1;
  double most = 0, expected = 1;
  for (int64_t k = 1; k <= 20; ++k) {
    expected += std::pow(sure, k);
    const double goodput = expected / (1 + static_cast<double>(k) * token_cost);
    if (goodput > most) best = k;
    most = std::max(most, goodput);
  }
  return best;
}

TEST(GoodputWindow, IsTheBestOneWhereAcceptanceIsConstant) {
  for (const double cost : {0.05, 0.1, 0.2, 0.5, 1.0}) {
    for (const double sure : {0.3, 0.5, 0.7, 0.8, 0.9, 0.97}) {
      EXPECT_EQ(drafted(cost, sure), best_window(cost, sure)) << cost << " " << sure;
    }
  }
}

TEST(GoodputWindow, BeginsEachRoundAnew) {
  GoodputWindow window(0.1, 20);
  window.begin(std::vector<Row>(1));
  const int64_t first = drafted(0.8, window);
  window.observe(0, {.drafted = first, .accepted = 1});
  EXPECT_EQ(drafted(0.8, window), first);
}

TEST(GoodputWindow, EndsAtLogitsThatAreNoNumbers) {
  GoodputWindow window(0.1, 20);
  window.begin(std::vector<Row>(1));
  const at::Tensor logits = at::full({1, 2}, std::nan(""), at::kDouble);
  EXPECT_FALSE(window.go_on({logits, at::zeros({1}, at::kLong), {}}).item<bool>());
}

TEST(GoodputWindow, KeepsGreedyOutputAndSampledDistributions) {
  const Pair pair;
  for (const double cost : {0.05, 0.3}) {
    DecodeOptions options = assisted("goodput", 2);
    options.draft_cost = cost;
    EXPECT_EQ(ids_of(Generator(pair.models(), options).generate(sources())), greedy(pair));
    DecodeOptions sampled = sampling(1.0, 3);
    sampled.window_rule = "goodput";
    sampled.draft_cost = cost;
    expect_targets_distribution(resembling_case(), sampled, "goodput " + std::to_string(cost));
    sampled.acceptance = "block";
    expect_targets_distribution(resembling_case(), sampled, "goodput, block " + std::to_string(cost));
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
