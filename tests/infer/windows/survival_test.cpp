// The window that ends once a rejection within the draft has become likely.
#include "infer/windows/survival.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/infer/windows/window_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

// Returns a router with P(disagreement) = sigmoid(bias + slope ln(1 + draft position) / 4), whatever the drafter says.
model::Router scripted_router(const model::TransformerModel& drafter, double bias, double slope) {
  model::RouterConfig config;
  config.top_k = 1;
  config.hidden = 1;
  config.width = drafter.config().width;
  config.vocabulary = drafter.config().vocabulary;
  config.drafter_hash = std::string(64, '0');
  auto parameters = model::Router(config, 1).parameters();
  for (auto& entry : parameters) entry.second = at::zeros_like(entry.second);
  parameters["scalars.weight"][0][2] = 1;  // after entropy and one probability
  parameters["output.weight"][0] = slope;
  parameters["output.bias"][0] = bias;
  return {config, std::move(parameters), "scripted"};
}

class SurvivalWindowTest : public ::testing::Test {
 protected:
  // Returns the number of tokens drafted in a round of `window`, which has begun.
  static int64_t drafted(SurvivalWindow& window, double logit = 0) {
    const at::Tensor logits = at::full({1, 24}, logit, at::kFloat);
    for (int64_t k = 1;; ++k) {
      if (k == window.maximum() || !window.go_on({logits, at::zeros({1}, at::kLong), {}}).item<bool>()) return k;
    }
  }

  // The first k with 1 - a_1 ... a_k > h.
  static int64_t expected(double bias, double slope, double max_risk) {
    double survival = 1;
    for (int64_t k = 1; k < 20; ++k) {
      const double logit = bias + slope * std::log(static_cast<double>(k)) / 4;
      survival *= 1 - 1 / (1 + std::exp(-logit));
      if (1 - survival > max_risk) return k;
    }
    return 20;
  }

  const std::unique_ptr<model::TransformerModel> drafter_ = random_model(24, 0, at::kFloat);
};

TEST_F(SurvivalWindowTest, EndsWhereARejectionHasBecomeLikely) {
  for (const double bias : {-4.0, -2.0, -1.0, 1.0}) {
    for (const double slope : {0.0, 3.0}) {  // above 0, later tokens are riskier
      const model::RouterPredictor router(scripted_router(*drafter_, bias, slope), *drafter_);
      for (const double max_risk : {0.05, 0.3, 0.7, 0.95}) {
        SurvivalWindow window(router, max_risk, 20);
        window.begin(std::vector<Row>(1));
        EXPECT_EQ(drafted(window), expected(bias, slope, max_risk)) << bias << " " << slope << " " << max_risk;
      }
    }
  }
}

TEST_F(SurvivalWindowTest, TheLimitsAreTheEnds) {
  const model::RouterPredictor router(scripted_router(*drafter_, -1, 0), *drafter_);
  for (const auto& [max_risk, tokens] : {std::pair{0.0, int64_t{1}}, std::pair{1.0, int64_t{6}}}) {
    SurvivalWindow window(router, max_risk, 6);
    window.begin(std::vector<Row>(1));
    EXPECT_EQ(drafted(window), tokens);
  }
}

TEST_F(SurvivalWindowTest, BeginsEachRoundAnew) {
  const model::RouterPredictor router(scripted_router(*drafter_, -2, 1), *drafter_);
  SurvivalWindow window(router, 0.5, 20);
  window.begin(std::vector<Row>(1));
  const int64_t first = drafted(window);
  EXPECT_GT(first, 1);
  window.observe(0, {.drafted = first, .accepted = 1, .emitted = 2});
  EXPECT_EQ(drafted(window), first);
}

TEST_F(SurvivalWindowTest, RowsGoAtTheirOwnPace) {
  const model::RouterPredictor router(scripted_router(*drafter_, -2, 1), *drafter_);
  const int64_t alone = expected(-2, 1, 0.5);
  SurvivalWindow window(router, 0.5, 20);
  window.begin(std::vector<Row>(2));
  const at::Tensor logits = at::zeros({2, 24}, at::kFloat);
  EXPECT_TRUE(window.go_on({logits, {}, std::vector<int64_t>{0, 1}})[1].item<bool>());
  window.observe(0, {.drafted = 0, .accepted = 0, .emitted = 1});
  window.observe(1, {.drafted = 1, .accepted = 1, .emitted = 2});
  window.select_rows(std::vector<int64_t>{1});
  EXPECT_EQ(drafted(window), alone);
}

TEST_F(SurvivalWindowTest, EndsAtLogitsThatAreNoNumbers) {
  const model::RouterPredictor router(scripted_router(*drafter_, -4, 0), *drafter_);
  SurvivalWindow window(router, 0.9, 20);
  window.begin(std::vector<Row>(1));
  EXPECT_EQ(drafted(window, std::numeric_limits<double>::quiet_NaN()), 1);
}

TEST_F(SurvivalWindowTest, KeepsGreedyOutputs) {
  const Pair pair;
  const auto expected_ids = greedy(pair);
  int64_t runs = 0;
  for (const double max_risk : {0.3, 0.7, 0.95}) {
    for (const int64_t batch : {1, 4}) {
      DecodeOptions options = assisted("survival", batch);
      options.max_risk = max_risk;
      const auto results = Generator(pair.models(), options).generate(sources());
      EXPECT_EQ(ids_of(results), expected_ids) << max_risk;
      if (batch > 1) continue;
      EXPECT_NE(total(results).draft_runs, runs) << "the limit changes nothing";
      runs = total(results).draft_runs;
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
