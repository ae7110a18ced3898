// Windows that adapt: the router's features and decisions, and entropy.
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>

#include "infer/sampling/row_kernels.h"
#include "infer/windows/window_rules.h"
#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

constexpr double kRuledOut = -std::numeric_limits<double>::infinity();

// Random logits with equal ones among them and some ids ruled out.
std::vector<double> some_logits(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> logits(count);
  for (double& value : logits) value = std::round(static_cast<double>(random() % 4000) / 20.0) / 4.0 - 20.0;
  for (size_t i = 3; i < count; i += 7) logits[i] = kRuledOut;
  return logits;
}

struct Naive {
  double entropy = 0;
  std::vector<int64_t> ids;
  std::vector<double> probabilities;
};

Naive naive_features(const std::vector<double>& logits, size_t k) {
  double total = 0;
  const double highest = *std::max_element(logits.begin(), logits.end());
  for (const double value : logits) total += std::exp(value - highest);
  Naive naive;
  std::vector<int64_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] - highest) / total;
    if (p > 0) naive.entropy -= p * std::log(p);
    if (logits[i] > kRuledOut) order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < k; ++i) {
    naive.ids.push_back(i < order.size() ? order[i] : -1);
    naive.probabilities.push_back(i < order.size() ? std::exp(logits[static_cast<size_t>(order[i])] - highest) / total
                                                   : 0);
  }
  return naive;
}

// A router's features of one row, by the CPU's rows.
template <class T>
Naive features_of_row(const std::vector<T>& logits, size_t k) {
  std::vector<float> probabilities(k);
  std::vector<int64_t> ids(k);
  const double entropy = router_features(logits.data(), std::ssize(logits), std::span(probabilities), std::span(ids));
  return {entropy, ids, {probabilities.begin(), probabilities.end()}};
}

TEST(RouterFeatures, EqualNaiveOnes) {
  for (const size_t count : {2U, 127U, 128U, 700U}) {
    for (const size_t k : {1U, 4U, 9U}) {
      const auto logits = some_logits(count, count);
      const Naive naive = naive_features(logits, k), row = features_of_row(logits, k);
      const Naive single = features_of_row(std::vector<float>(logits.begin(), logits.end()), k);
      const at::Tensor wide = at::tensor(logits, at::kDouble).unsqueeze(0);
      const model::RouterFeatures tensors = router_features(wide, static_cast<int64_t>(k));
      EXPECT_NEAR(row.entropy, naive.entropy, 1e-9);
      EXPECT_NEAR(single.entropy, naive.entropy, 1e-4);
      EXPECT_NEAR(tensors.entropy[0].item<double>(), naive.entropy, 1e-4);
      EXPECT_NEAR(entropy(wide)[0].item<double>(), naive.entropy, 1e-9);
      EXPECT_EQ(row.ids, naive.ids);
      EXPECT_EQ(single.ids, naive.ids);
      for (size_t i = 0; i < k; ++i) {
        EXPECT_NEAR(row.probabilities[i], naive.probabilities[i], 1e-6);
        EXPECT_NEAR(single.probabilities[i], naive.probabilities[i], 1e-6);
        EXPECT_NEAR(tensors.probabilities[0][static_cast<int64_t>(i)].item<double>(), naive.probabilities[i], 1e-5);
      }
    }
  }
  const auto few = router_features(at::tensor({1.0, kRuledOut, 2.0}, at::kDouble).view({1, 3}), 4);
  EXPECT_TRUE(at::equal(few.ids, at::tensor({2, 0, -1, -1}, at::kLong).view({1, 4})));
  EXPECT_EQ(few.probabilities[0][3].item<float>(), 0);
}

TEST(RouterFeatures, RowsWithoutNumbersHaveNoEntropy) {
  const std::vector<float> broken(40, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(entropy(at::tensor(broken).unsqueeze(0))[0].item<double>()));
  EXPECT_EQ(features_of_row(broken, 2).ids.front(), -1);
}

TEST(RouterWindow, StopsExactlyWherePredicted) {
  const auto drafter = random_model(24, 0, at::kFloat);
  const model::RouterPredictor predictor(random_router(*drafter), *drafter);
  const at::Tensor logits = at::randn({50, 24}, at::kFloat) * 2;
  const at::Tensor disagreement = predictor.disagreement(router_features(logits, 3));
  const double middle = 1 - disagreement.median().item<double>() + 1e-4;  // rows on both sides, none at the edge
  const auto go_on = [&](double threshold, const at::Tensor& asked) {
    RouterWindow window(predictor, threshold, 8);
    return window.go_on({asked, {}});
  };
  const at::Tensor answers = go_on(middle, logits);
  EXPECT_TRUE(at::equal(answers, (1 - disagreement).ge(middle)));
  EXPECT_GT(answers.sum().item<int64_t>(), 10);
  EXPECT_LT(answers.sum().item<int64_t>(), 40);
  EXPECT_TRUE(at::equal(go_on(middle, logits.to(at::kDouble)), answers));
  const at::Tensor half = logits.to(at::kBFloat16);
  EXPECT_TRUE(at::equal(go_on(middle, half), go_on(middle, half.to(at::kFloat))));
  EXPECT_TRUE(go_on(0, logits).all().item<bool>());
  EXPECT_FALSE(go_on(1.1, logits).any().item<bool>());
}

TEST(EntropyWindow, StopsAboveTheThreshold) {
  const at::Tensor logits = at::tensor({0.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0}, at::kFloat).view({2, 4});
  EntropyWindow window(1.38, 8);  // ln 4 = 1.386
  const at::Tensor answers = window.go_on({logits, {}});
  EXPECT_FALSE(answers[0].item<bool>());
  EXPECT_TRUE(answers[1].item<bool>());
  EXPECT_TRUE(EntropyWindow(1.39, 8).go_on({logits, {}}).all().item<bool>());
}

TEST(AdaptiveWindows, AreLosslessAtTemperatureZero) {
  const Pair pair;
  const auto expected = greedy(pair);
  for (const int64_t batch : {1, 4}) {
    for (const double threshold : {0.0, 0.5, 1.1}) {
      DecodeOptions options = assisted("router", batch);
      options.threshold = threshold;
      options.max_draft = 6;
      const auto results = Generator(pair.models(), options).generate(sources());
      EXPECT_EQ(ids_of(results), expected) << threshold;
      const DecodeStats stats = total(results);
      EXPECT_EQ(stats.draft_runs, stats.drafted);      // no run of the drafter is thrown away
      EXPECT_EQ(stats.accepted_histogram.size(), 7U);  // lengths 0..max_draft
    }
    DecodeOptions options = assisted("entropy", batch);
    options.max_entropy = 1.2;
    EXPECT_EQ(ids_of(Generator(pair.models(), options).generate(sources())), expected);
  }
}

TEST(AdaptiveWindows, TheRoutersDefaultsHoldUnlessOptionsSayOtherwise) {
  const Pair pair;
  DecodeOptions options = assisted("router", 1);
  options.threshold = 0;
  const auto longest = [&](const DecodeOptions& wanted) {
    const DecodeStats stats = total(Generator(pair.models(), wanted).generate(sources()));
    return static_cast<int64_t>(stats.accepted_histogram.size()) - 1;
  };
  EXPECT_EQ(longest(options), pair.router.config().max_draft);
  options.max_draft = 3;
  EXPECT_EQ(longest(options), 3);
}

TEST(AdaptiveWindows, RouterIsAskedForAndRefusedByName) {
  const Pair pair;
  GenerationModels models = pair.models();
  models.router = nullptr;
  EXPECT_THAT(error_of([&] { Generator(models, assisted("router", 1)); }), ::testing::HasSubstr("--router"));
  EXPECT_THAT(error_of([&] { Generator(models, assisted("oracle", 1)); }), ::testing::HasSubstr("evaluation"));
}

// Between the least and the greatest acceptance that a router predicts after some beginnings of a text.
double middle_acceptance(const model::RouterPredictor& router, const OracleFunction& drafter) {
  std::vector<double> acceptance;
  for (const Ids& prefix : {Ids{}, Ids{0}, Ids{2}, Ids{3}, Ids{2, 2}, Ids{3, 2}}) {
    const at::Tensor logits = at::tensor(drafter(Ids{2, 3}, prefix), at::kDouble).log().unsqueeze(0);
    acceptance.push_back(1 - router.disagreement(router_features(logits, 3)).item<double>());
  }
  const auto [least, greatest] = std::minmax_element(acceptance.begin(), acceptance.end());
  return (*least + *greatest) / 2;
}

// As in tests/infer/acceptance/rules_test.cpp: a deviate above 4.75 has probability 1e-6 in each comparison.
TEST(AdaptiveWindows, KeepTheDistributionWhenSampling) {
  const auto weights = random_model(4, 0, at::kFloat);
  const model::RouterPredictor router(random_router(*weights), *weights);
  const OracleFunction function = random_oracle(4, 1);
  OraclePair oracles({function, mixture(function, random_oracle(4, 2), 0.6)});
  GenerationModels models = oracles.models();
  models.router = &router;
  const auto expect_distribution = [&](const DecodeOptions& options, const std::string& what) {
    const auto results = Generator(models, options).generate(std::vector<Ids>{{2, 3}});
    const auto expected = enumerate(function, {2, 3}, {.temperature = *options.temperature}, 4);
    EXPECT_LT(chi_square_deviate(expected, count_sequences(results)), 4.75) << what;
    return total(results);
  };
  DecodeOptions options{.method = "speculative", .max_draft = 3, .max_new_tokens = 4, .num_samples = 4096};
  const auto drafted = [](const DecodeStats& stats) {
    return static_cast<double>(stats.drafted) / static_cast<double>(stats.verifications);
  };
  const double middle = middle_acceptance(router, mixture(function, random_oracle(4, 2), 0.6));
  for (const double temperature : {0.7, 1.0}) {
    options.temperature = temperature;
    options.window_rule = "router";
    std::map<double, double> lengths;  // by threshold
    for (const double threshold : {0.0, middle, 1.1}) {
      options.threshold = threshold;
      lengths[threshold] = drafted(expect_distribution(options, "router " + std::to_string(threshold)));
    }
    EXPECT_LT(lengths[middle], 0.95 * lengths[0.0]);  // some drafts were cut,
    EXPECT_GT(lengths[middle], 1.05 * lengths[1.1]);  // and some were not
    options.window_rule = "entropy";
    for (const double most : {0.5, 0.9}) {
      options.max_entropy = most;
      const DecodeStats stats = expect_distribution(options, "entropy " + std::to_string(most));
      EXPECT_LT(stats.drafted, stats.verifications * 3);  // the rule did stop drafts
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
