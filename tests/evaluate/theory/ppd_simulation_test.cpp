// PPD on several devices, from times of its parts: by hand, and measured on a small model.
#include "evaluate/theory/ppd_simulation.h"

#include <gtest/gtest.h>

#include "tests/support/early_exit_fixtures.h"

namespace draftsmith::evaluate {
namespace {

// A model without heads or copies, whose wider passes cost nothing: what the theorem is about.
LayerTimes ideal_times(int64_t ahead) {
  LayerTimes times;
  times.layer = 1;
  for (const int64_t branches : {1, 2, 3, 5}) times.branches[branches] = static_cast<double>(ahead);
  return times;
}

TEST(PpdSimulation, IsTheTheoremWhereNothingElseCosts) {
  for (const int64_t early : {6, 7, 9, 11}) {
    for (const double rate : {0.0, 0.3, 1.0}) {
      const PpdSetting setting{12, early, 5, rate};
      const PpdSimulation simulation = simulate_ppd(ideal_times(12 - early), setting, 40);
      const PpdCost theorem = ppd_cost(setting, 40);
      EXPECT_NEAR(simulation.latency.back() * 40, theorem.latency, 1e-9);
      EXPECT_NEAR(simulation.theorem.latency * 40, theorem.latency, 1e-9);
      EXPECT_NEAR(simulation.theorem.compute * 40, theorem.compute, 1e-9);
      EXPECT_NEAR(simulation.speedup(6), simulation.theorem_speedup(), 1e-12);
      EXPECT_EQ(simulation.plain, 12);
      EXPECT_EQ(simulation.pays_from.has_value(), rate > 0);
      EXPECT_EQ(simulation.pays_from.value_or(2), 2);
    }
  }
}

// d 4, d-bar 3, k 3: one layer ahead, one at each end and two between.
TEST(PpdSimulation, EqualsTheSumsByHand) {
  LayerTimes times;
  times.embedding = 0.5;
  times.layer = 10;
  times.head = 4;
  times.early_head = 3;
  times.branches = {{1, 11}, {2, 13}, {3, 15}};
  times.message = 2;
  times.copy = 1;
  const PpdSimulation simulation = simulate_ppd(times, {4, 3, 3, 0.5}, 5);
  const double resumed = 0.5 * 4 / 5;
  EXPECT_DOUBLE_EQ(simulation.plain, 44.5);
  ASSERT_EQ(simulation.latency.size(), 4u);
  const auto mixed = [&](double anew, double gone_on) { return (1 - resumed) * anew + resumed * gone_on; };
  EXPECT_DOUBLE_EQ(simulation.latency[0], mixed(0.5 + 10 + 20 + 3 + 15 + 14, 20 + 3 + 15 + 14));
  EXPECT_DOUBLE_EQ(simulation.latency[1], mixed(0.5 + 10 + 20 + 3 + 17, 1 + 20 + 3 + 17));
  EXPECT_DOUBLE_EQ(simulation.latency[2], mixed(0.5 + 10 + 20 + 3 + 15, 1 + 20 + 3 + 15));
  EXPECT_DOUBLE_EQ(simulation.latency[3], mixed(0.5 + 10 + 20 + 3 + 14, 1 + 20 + 3 + 14));
  EXPECT_EQ(simulation.pays_from, 4);
  // 47.5 - r 9.5 = 44.5 on four devices, r four fifths of the match rate.
  EXPECT_NEAR(*simulation.break_even_match_rate, 3 / 9.5 * 5 / 4, 1e-12);
  EXPECT_EQ(simulation.latency.size(), 4u);
}

TEST(PpdSimulation, CopiesThatCostMoreThanLayersNeverPay) {
  LayerTimes times = ideal_times(2);
  times.copy = 3;
  const PpdSimulation simulation = simulate_ppd(times, {4, 2, 3, 1}, 100);
  EXPECT_FALSE(simulation.pays_from);
  EXPECT_FALSE(simulation.break_even_match_rate);
}

// Of a sequence of one token nothing can be resumed; a match rate of 0 pays nowhere.
TEST(PpdSimulation, OneTokenGainsNothing) {
  const PpdSimulation simulation = simulate_ppd(ideal_times(2), {4, 2, 3, 1}, 1);
  EXPECT_EQ(simulation.latency.back(), simulation.plain);
  EXPECT_FALSE(simulation.pays_from);
  EXPECT_THROW(simulate_ppd(ideal_times(2), {4, 2, 3, 1}, 0.5), std::invalid_argument);
}

TEST(PpdSimulation, TimesOfARealModelArePositiveAndComplete) {
  for (const char* family : {"t5", "llama"}) {
    const auto model = infer::testing::exit_model({.family = family, .type = at::kFloat, .layers = 5});
    const infer::PpdSettings ppd{3, 5};
    const LayerTimes times = measure_layer_times(*model, nullptr, ppd, {{4, 5, 6, 1}, {0, 7, 8}}, 3);
    EXPECT_GT(times.embedding, 0);
    EXPECT_GT(times.layer, 0);
    EXPECT_GT(times.head, 0);
    EXPECT_GT(times.early_head, 0);
    EXPECT_GT(times.message, 0);
    EXPECT_GT(times.copy, 0);
    ASSERT_EQ(times.branches.size(), 4u);  // 5, 3, 2, 2, 1
    for (const auto& [branches, seconds] : times.branches) EXPECT_GT(seconds, 0) << branches;
    const auto& config = model->config();
    EXPECT_EQ(times.copy_bytes, 4 * (2 * 2 * config.key_value_heads() * config.head_width + config.width));
    EXPECT_EQ(simulate_ppd(times, {5, 3, 5, 0.5}, 10).latency.size(), 6u);
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
