// Rounds on the device give what rounds that the host leads give: ids, counts and errors. And the budgets of decoding:
// what a token asks of a device, counted on the stand-in accelerator.
#include "infer/loop/device_loop.h"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/device.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"

namespace draftsmith::infer {
namespace {

using on_device::Decoding;
using on_device::device_options;
using on_device::results_on;
using on_device::test_device;

using Results = std::vector<GenerationResult>;

class DeviceLoopTest : public ::testing::Test {
 protected:
  void TearDown() override {
    on_device::record_graphs(true);
    standin::limit_bytes(0);
  }

  static Results led_by_host(const Decoding& decoding) {
    on_device::record_graphs(false);
    Results results = results_on(test_device(), decoding);
    on_device::record_graphs(true);
    return results;
  }

  static void expect_same(const Decoding& decoding) {
    const Results expected = led_by_host(decoding);
    const Results found = results_on(test_device(), decoding);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(fmt::format("output {}", i));
      EXPECT_EQ(found[i].ids, expected[i].ids);
      EXPECT_EQ(found[i].error.has_value(), expected[i].error.has_value());
      if (found[i].error && expected[i].error) {
        EXPECT_EQ(found[i].error->where, expected[i].error->where);
        EXPECT_EQ(found[i].error->what, expected[i].error->what);
      }
      expect_same_counts(found[i].stats, expected[i].stats);
    }
  }

  static void expect_same_counts(const DecodeStats& found, const DecodeStats& expected) {
    const auto counts = [](const DecodeStats& stats) {
      return std::vector{
          stats.emitted,          stats.target_runs,       stats.target_tokens,      stats.draft_runs,
          stats.drafted,          stats.verifications,     stats.accepted,           stats.cut,
          stats.overlap_count,    stats.target_steps.keys, stats.target_steps.pairs, stats.draft_steps.tokens,
          stats.draft_steps.keys, stats.draft_steps.pairs};
    };
    EXPECT_EQ(counts(found), counts(expected));
    EXPECT_EQ(found.accepted_histogram, expected.accepted_histogram);
    EXPECT_NEAR(found.overlap_sum, expected.overlap_sum, 1e-9);
  }
};

TEST_F(DeviceLoopTest, EqualsTheHostsLoops) {
  for (const model::TransformerConfig& config : {model::tiny_t5(), model::tiny_llama()}) {
    for (const auto& [method, temperature] :
         {std::pair{"greedy", 0.0}, {"sample", 1.0}, {"speculative", 0.0}, {"speculative", 1.0}}) {
      for (const int64_t batch : {1, 5}) {
        SCOPED_TRACE(fmt::format("{} {} T {} batch {}", config.family, method, temperature, batch));
        Decoding decoding{config, device_options(method, temperature, batch)};
        decoding.options.measure_alpha = std::string(method) == "speculative";
        expect_same(decoding);
      }
    }
  }
}

TEST_F(DeviceLoopTest, DraftsWithFewerIdsAndNeverPutsPaddingOut) {
  model::TransformerConfig config = model::tiny_llama();
  const testing::Letters letters(config.vocabulary - 3);
  for (const double temperature : {0.0, 1.0}) {
    Decoding decoding{config, device_options("speculative", temperature, 3)};
    decoding.tokenizer = &letters;
    decoding.drafter_vocabulary = config.vocabulary - 2;
    expect_same(decoding);
  }
}

// Inputs of 1 to 40 tokens: some end before the drafter's positions do, some after, some begin after them.
TEST_F(DeviceLoopTest, DraftersWithFewerPositionsLeaveTheRestToTheTarget) {
  for (const double temperature : {0.0, 1.0}) {
    Decoding decoding{model::tiny_llama(), device_options("speculative", temperature, 3)};
    decoding.endless = true;
    decoding.drafter_positions = 16;
    expect_same(decoding);
    Decoding alone = decoding;
    alone.options = device_options("greedy", 0, 3);
    if (temperature == 0) {
      EXPECT_EQ(on_device::decode_on(test_device(), decoding), on_device::decode_on(test_device(), alone));
    }
  }
}

TEST_F(DeviceLoopTest, EndsAtStopStringsThatOnlyTheHostKnows) {
  const model::TransformerConfig config = model::tiny_llama();
  const testing::Letters letters(26);
  Decoding decoding{config, device_options("speculative", 0, 5)};
  decoding.tokenizer = &letters;
  decoding.endless = true;
  const std::vector<int64_t> ids = led_by_host(decoding)[3].ids;
  ASSERT_GE(ids.size(), 6U);
  const std::vector<int32_t> two{static_cast<int32_t>(ids[4]), static_cast<int32_t>(ids[5])};
  decoding.options.stop_strings = {letters.decode(two)};
  expect_same(decoding);
}

TEST_F(DeviceLoopTest, FailsTheRowsWhoseLogitsAreNoNumbers) {
  for (const auto& [method, drafter] : {std::pair{"greedy", false}, {"speculative", false}, {"speculative", true}}) {
    SCOPED_TRACE(fmt::format("{} {}", method, drafter));
    Decoding decoding{model::tiny_mt5(), device_options(method, 0, 5)};
    decoding.broken_token = 9;  // of the first input
    decoding.breaks_drafter = drafter;
    expect_same(decoding);
  }
}

// Rows end after 1 to 12 tokens and accept what they do: ids are the CPU's, whatever the batch.
TEST_F(DeviceLoopTest, BatchesOfAllSizesGiveTheIdsOfTheCpu) {
  Decoding decoding{model::tiny_t5(), device_options("speculative", 0, 1)};
  decoding.sources.clear();
  for (int64_t i = 0; i < 32; ++i) {
    decoding.sources.emplace_back();
    for (int64_t t = 0; t <= i * 7 % 11; ++t) decoding.sources.back().push_back(3 + (5 * i + 3 * t) % 17);
  }
  for (const double temperature : {0.0, 1.0}) {
    decoding.options.temperature = temperature;
    const Results expected = results_on(at::kCPU, decoding);
    for (const int64_t batch : {4, 32}) {
      decoding.options.batch_size = batch;
      const Results found = results_on(test_device(), decoding);
      std::set<int64_t> accepted;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[i].ids, expected[i].ids) << "T " << temperature << " batch " << batch << " line " << i;
        accepted.insert(found[i].stats.accepted);
      }
      EXPECT_GT(accepted.size(), 3) << "ragged";
    }
  }
}

// A round is in flight when an error ends a batch; the next batch does not take its verdict.
TEST_F(DeviceLoopTest, AnErrorLeavesNothingToLaterBatches) {
  for (const char* method : {"greedy", "speculative"}) {
    Decoding decoding{model::tiny_t5(), device_options(method, 0, 5)};
    decoding.endless = true;
    const Results expected = led_by_host(decoding);
    const on_device::DecodingModels all = on_device::models_on(test_device(), decoding);
    Generator generator(all.models, decoding.options);
    const auto sources = on_device::device_sources();
    const auto stop = [](const auto&...) { throw std::runtime_error("stopped"); };
    EXPECT_THROW(generator.generate({sources.data(), 2}, 0, {}, stop), std::runtime_error);
    const Results found = generator.generate(sources);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i].ids, expected[i].ids) << method << " " << i;
  }
}

// Windows longer than the kernels of steps take, and truncated distributions. Samples of a source end at different
// times, so rows that stay belong to other sources in one batch than in the next.
TEST_F(DeviceLoopTest, LongWindowsFollowTheRows) {
  Decoding decoding{model::tiny_t5(), device_options("speculative", 0.7, 2)};
  decoding.options.window = 36;
  decoding.options.max_new_tokens = 45;
  decoding.options.num_samples = 3;
  decoding.options.top_k = 7;
  decoding.options.top_p = 0.9;
  expect_same(decoding);
}

// What earlier batches keep is given up where a batch needs the memory.
TEST_F(DeviceLoopTest, ABatchTakesTheMemoryOfEarlierOnes) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator's memory can be limited";
  Decoding decoding{model::tiny_t5(), device_options("speculative", 0, 1)};
  const auto sources = on_device::device_sources();
  const Results expected = led_by_host(decoding);
  const on_device::DecodingModels all = on_device::models_on(test_device(), decoding);
  Generator generator(all.models, decoding.options);
  standin::take_peak_bytes();
  const size_t before = standin::take_peak_bytes();
  generator.generate({sources.data() + 4, 1});  // 40 tokens
  const size_t one = standin::take_peak_bytes() - before;
  all.target->free_states();
  for (const size_t share : {1, 4}) {
    standin::limit_bytes(before + one + one / share);
    const Results found = generator.generate(sources);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i].ids, expected[i].ids) << share << " " << i;
  }
  standin::limit_bytes(0);
}

// What a round asks of the device: the difference of two lengths. Inputs are decoded one by one.
TEST_F(DeviceLoopTest, ARoundIsOneOrTwoLaunchesOneCopyAndOneWait) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  for (const auto& [method, temperature, launches] :
       {std::tuple{"greedy", 0.0, 1}, std::tuple{"sample", 1.0, 1}, std::tuple{"speculative", 0.0, 2},
        std::tuple{"speculative", 1.0, 2}}) {
    const auto of_length = [&](int64_t tokens) {
      Decoding decoding{model::tiny_t5(), device_options(method, temperature, 1)};
      decoding.options.max_new_tokens = tokens;
      decoding.endless = true;
      standin::reset_counts();
      const Results results = results_on(test_device(), decoding);
      return std::pair(standin::counts(), total(results).target_runs);
    };
    const auto [few, few_rounds] = of_length(20);
    const auto [many, many_rounds] = of_length(60);
    const int64_t rounds = many_rounds - few_rounds;
    const int64_t all = many.all_launches() - few.all_launches();
    fmt::print("{:<12} T {}: {} launches, {} copies and {} waits for {} rounds\n", method, temperature, all,
               many.copies_to_host - few.copies_to_host, many.waits - few.waits, rounds);
    ASSERT_GT(rounds, 50);
    EXPECT_EQ(all, launches * rounds);
    EXPECT_EQ(many.copies_to_host - few.copies_to_host, rounds);
    EXPECT_EQ(many.copies_to_device, few.copies_to_device);
    EXPECT_EQ(many.waits - few.waits, rounds);
  }
}

// Without recordings: launches of a layer and others of a greedy token, from runs of two lengths and two depths. The
// numbers are those of today.
TEST_F(DeviceLoopTest, AGreedyTokenKeepsItsBudget) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  on_device::record_graphs(false);
  const auto launches_of = [](const model::TransformerConfig& config, at::ScalarType type) {
    const auto counts_of = [&](int64_t tokens) {
      Decoding decoding{config, device_options("greedy", 0, 1), type, /*endless=*/true};
      decoding.options.max_new_tokens = tokens;
      standin::reset_counts();
      results_on(test_device(), decoding);
      return standin::counts();
    };
    const standin::Counts few = counts_of(4), many = counts_of(12);
    const auto tokens = 8 * std::ssize(on_device::device_sources());
    EXPECT_LE(many.copies_to_device + many.copies_to_host - few.copies_to_device - few.copies_to_host, 2 * tokens);
    EXPECT_LE(many.waits - few.waits, tokens);
    return static_cast<double>(many.all_launches() - few.all_launches()) / static_cast<double>(tokens);
  };
  for (const auto& [config, a_layer, others] :
       {std::tuple{model::tiny_t5(), 9.0, 5.0}, {model::tiny_llama(3), 7.0, 4.0}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      model::TransformerConfig fewer = config;
      --fewer.decoder_layers;
      const double launches = launches_of(config, type);
      const double layer = launches - launches_of(fewer, type);
      const double other = launches - layer * static_cast<double>(config.decoder_layers);
      fmt::print("{:<8} {:<8} {:5.1f} launches a layer and {:4.1f} others\n", config.family, at::toString(type), layer,
                 other);
      EXPECT_LE(layer, a_layer);
      EXPECT_LE(other, others);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
