// What is collected for a router: exact features and targets at the positions that verification examined.
#include "infer/routers.h"

#include <cmath>

#include <gtest/gtest.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/model_drafter.h"
#include "infer/loop/decode_loop.h"
#include "infer/windows/window_rules.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

std::unique_ptr<Drafter> at_work(model::LanguageModel& drafter) {
  return std::make_unique<ModelDrafter>(drafter, drafter.info().vocabulary);
}

DecodeOptions decoding(double temperature) {
  DecodeOptions options{.method = "speculative", .max_new_tokens = 12, .batch_size = 3, .measure_alpha = true};
  options.temperature = temperature;
  return options;
}

TEST(RouterCollection, HoldsFeaturesAndTotalVariationOfKnownDistributions) {
  const std::vector<double> p{0.3, 0.0, 0.3, 0.4}, q{0.1, 0.0, 0.7, 0.2};
  OraclePair oracles({constant_oracle(p), constant_oracle(q)});
  RouterCollector collector(4);
  Generator generator(oracles.models(), decoding(0.7), collector.watched(at_work(oracles.drafter), 5));
  const auto results = generator.generate(std::vector<Ids>{{2}, {3, 3}}, 10);
  const data::RouterRows rows = collector.drain();
  ASSERT_GT(rows.size(), 8);
  double entropy = 0;
  for (const double value : q) entropy -= value > 0 ? value * std::log(value) : 0;
  for (size_t n = 0; n < rows.entropy.size(); ++n) {
    EXPECT_NEAR(rows.entropy[n], entropy, 1e-6);
    EXPECT_NEAR(rows.disagreement[n], 0.4, 1e-6);  // whatever the temperature
    EXPECT_EQ(rows.ids[4 * n], 2);
    EXPECT_EQ(rows.ids[4 * n + 1], 3);
    EXPECT_EQ(rows.ids[4 * n + 2], 0);
    EXPECT_EQ(rows.ids[4 * n + 3], -1);  // impossible
    EXPECT_NEAR(rows.probabilities[4 * n], 0.7, 1e-6);
    EXPECT_EQ(rows.probabilities[4 * n + 3], 0);
  }
  const DecodeStats stats = total(results);
  EXPECT_EQ(rows.size(), stats.overlap_count);  // the positions of alpha
  EXPECT_EQ(std::count(rows.rejected.begin(), rows.rejected.end(), 0), stats.accepted);
  EXPECT_TRUE(std::is_sorted(rows.examples.begin(), rows.examples.end()));
  EXPECT_EQ(rows.examples.front(), 10);
  EXPECT_EQ(rows.examples.back(), 11);
  EXPECT_EQ(collector.drain().size(), 0);
}

TEST(RouterCollection, DoesNotDependOnTheBatchAndChangesNoOutput) {
  const OracleFunction function = random_oracle(6, 1);
  OraclePair oracles({function, mixture(function, random_oracle(6, 2), 0.5), 6});
  const std::vector<Ids> sources{{2, 3}, {4}, {5, 5, 2}, {3}};
  const auto collect = [&](int64_t batch, double temperature, std::vector<GenerationResult>& results) {
    DecodeOptions options = decoding(temperature);
    options.batch_size = batch;
    RouterCollector collector(3);
    Generator generator(oracles.models(), options, collector.watched(at_work(oracles.drafter), 4));
    results = generator.generate(sources);
    return collector.drain();
  };
  for (const double temperature : {0.0, 1.0}) {
    std::vector<GenerationResult> alone, together;
    const auto a = collect(1, temperature, alone);
    const auto b = collect(4, temperature, together);
    EXPECT_EQ(a.disagreement, b.disagreement);
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.rejected, b.rejected);
    EXPECT_EQ(a.examples, b.examples);
    Generator plain(
        oracles.models(), decoding(temperature),
        {at_work(oracles.drafter), std::make_unique<FixedWindow>(4), std::make_unique<RejectionAcceptance>()});
    const auto expected = plain.generate(sources);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(alone[i].ids, expected[i].ids);
      EXPECT_EQ(together[i].ids, expected[i].ids);
    }
    // Each row's counts, from what was collected alone.
    for (size_t i = 0; i < expected.size(); ++i) {
      int64_t kept = 0;
      for (size_t n = 0; n < a.rejected.size(); ++n) {
        kept += a.examples[n] == static_cast<int32_t>(i) && a.rejected[n] == 0 ? 1 : 0;
      }
      EXPECT_EQ(kept, expected[i].stats.accepted);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
