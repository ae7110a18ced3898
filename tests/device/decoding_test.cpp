// Decoding on a device gives the CPU's ids, with every method, family and kind of model. Rounds on the device give what
// rounds that the host leads give: ids, counts and errors. And what a token asks of the stand-in accelerator.
#include <limits>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/device_kernels.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "model/files/generation_config.h"
#include "model/models/router.h"
#include "tests/device/device.h"
#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/block_decoders.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer {
namespace {

using on_device::on_standin;
using on_device::test_device;
using testing::ids_of;
using Results = std::vector<GenerationResult>;

// Returns `count` inputs of 1 to 40 tokens: the fifth, the longest, is processed as a prompt is.
std::vector<std::vector<int64_t>> device_sources(int64_t count = 5) {
  std::vector<std::vector<int64_t>> sources{{5, 9, 3, 1}, {7}, {2, 4, 6, 8, 10, 12}, {11, 13, 5}, {}};
  for (int64_t i = 0; i < 40; ++i) sources.back().push_back(3 + i % 17);
  for (int64_t i = 5; i < count; ++i) {
    sources.emplace_back();
    for (int64_t t = 0; t <= i * 7 % 11; ++t) sources.back().push_back(3 + (5 * i + 3 * t) % 17);
  }
  return sources;
}

DecodeOptions device_options(const std::string& method, double temperature, int64_t batch) {
  DecodeOptions options{.method = method};
  if (options.method_info().sampling != Sampling::kNever) options.temperature = temperature;
  options.max_new_tokens = 12;
  options.batch_size = batch;
  return options;
}

// Decoding of `sources` with a target and a drafter of a family.
struct Decoding {
  model::TransformerConfig config;
  DecodeOptions options;
  at::ScalarType type = at::kDouble;
  bool endless = false;                                  // outputs have no EOS
  const data::Tokenizer* tokenizer = nullptr;            // of both models
  std::optional<model::TransformerConfig> drafter = {};  // nothing: the target's
  int64_t broken_token = -1;                             // its embedding is NaN; -1: none
  bool breaks_drafter = false;                           // the drafter's, not the target's
  std::vector<std::vector<int64_t>> sources = device_sources();
};

// Models of a decoding on a device.
struct DecodingModels {
  std::unique_ptr<model::TransformerModel> target, drafter;
  GenerationModels models;  // refers to both
};

DecodingModels models_on(c10::Device device, const Decoding& decoding) {
  const auto model_of = [&](uint64_t seed, bool drafts) {
    const bool own = drafts && decoding.drafter;
    auto model = model::varied_model(own ? *decoding.drafter : decoding.config, seed, decoding.type);
    model->requires_grad(false);
    if (decoding.broken_token >= 0 && drafts == decoding.breaks_drafter) {
      at::Tensor embedding = model->parameters().at("embedding.weight");
      embedding[decoding.broken_token].fill_(std::numeric_limits<double>::quiet_NaN());
    }
    model->to(device, decoding.type);
    model->pack();
    return model;
  };
  DecodingModels all{model_of(1, false), model_of(2, true), {}};
  all.models.target = all.target.get();
  all.models.target_tokenizer = decoding.tokenizer;
  if (decoding.endless) {
    all.models.generation = model::default_generation_config(decoding.config);
    all.models.generation->eos_ids.clear();
  }
  if (decoding.options.drafts()) all.models.drafter = as_drafter(*all.drafter, decoding.tokenizer);
  return all;
}

Results results_on(c10::Device device, const Decoding& decoding) {
  const DecodingModels all = models_on(device, decoding);
  return Generator(all.models, decoding.options).generate(decoding.sources);
}

// Decodes on the CPU, moves the models to the device and decodes there.
template <class Run>
void expect_the_cpus_ids(const Run& run, const std::vector<model::TransformerModel*>& models) {
  const auto expected = ids_of(run());
  for (model::TransformerModel* model : models) {
    model->to(test_device(), at::kDouble);
    model->pack();
  }
  EXPECT_EQ(ids_of(run()), expected);
}

class DeviceDecoding : public ::testing::Test {
 protected:
  void TearDown() override {
    want_recordings(true);  // also after a recording that failed
    standin::limit_bytes(0);
  }

  static Results led_by_host(const Decoding& decoding) {
    want_recordings(false);
    Results results = results_on(test_device(), decoding);
    want_recordings(true);
    return results;
  }

  static std::vector<int64_t> counts_of(const DecodeStats& stats) {
    return {stats.emitted,          stats.target_runs,       stats.target_tokens,      stats.draft_runs,
            stats.drafted,          stats.verifications,     stats.accepted,           stats.cut,
            stats.overlap_count,    stats.target_steps.keys, stats.target_steps.pairs, stats.draft_steps.tokens,
            stats.draft_steps.keys, stats.draft_steps.pairs};
  }

  // Returns what the device gave.
  static Results expect_the_hosts_results(const Decoding& decoding) {
    const Results expected = led_by_host(decoding);
    Results found = results_on(test_device(), decoding);
    EXPECT_EQ(ids_of(found), ids_of(expected));
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(fmt::format("output {}", i));
      const auto error = [&](const Results& results) {
        return results.at(i).error ? results[i].error->where + ": " + results[i].error->what : "none";
      };
      EXPECT_EQ(error(found), error(expected));
      const DecodeStats &own = found[i].stats, &hosts = expected[i].stats;
      EXPECT_EQ(counts_of(own), counts_of(hosts));
      EXPECT_EQ(own.accepted_histogram, hosts.accepted_histogram);
      EXPECT_NEAR(own.overlap_sum, hosts.overlap_sum, 1e-9);
    }
    return found;
  }
};
using DeviceLoopTest = DeviceDecoding;

TEST_F(DeviceDecoding, EveryMethodGivesTheCpusIdsAndTheHostsCounts) {
  for (const model::TransformerConfig& config : model::tiny_models()) {
    for (const auto& [method, temperature] :
         {std::pair{"greedy", 0.0}, {"sample", 1.0}, {"speculative", 0.0}, {"speculative", 1.0}, {"bild", 0.0}}) {
      for (const int64_t batch : {1, 5, 32}) {
        if (batch == 32 && config.family != "t5") continue;
        SCOPED_TRACE(fmt::format("{} {} T {} batch {}", config.family, method, temperature, batch));
        Decoding decoding{config, device_options(method, temperature, batch)};
        decoding.sources = device_sources(batch);  // at least five
        decoding.options.measure_alpha = std::string(method) == "speculative";
        EXPECT_EQ(ids_of(expect_the_hosts_results(decoding)), ids_of(results_on(at::kCPU, decoding)));
      }
    }
  }
}

// Methods inside a model: its first layers draft, decide or predict early.
TEST_F(DeviceDecoding, MethodsInsideGiveTheCpusIds) {
  for (const char* method : {"early-exit", "calm", "ppd"}) {
    for (const char* family : {"t5", "llama", "gpt2"}) {
      SCOPED_TRACE(fmt::format("{} {}", method, family));
      DecodeOptions options = testing::exit_options(method, 3);
      options.max_new_tokens = 6;
      if (options.drafts_inside()) options.exit_layer = 2;
      const auto model = testing::exit_model({.family = family});
      expect_the_cpus_ids([&] { return testing::run_exit(*model, 0, options); }, {model.get()});
    }
  }
}

TEST_F(DeviceDecoding, DraftersThatReadTheTargetGiveTheCpusIds) {
  const auto expect_same = [](const testing::TandemPair& pair, const char* method, int64_t batch, int64_t lookup = 0) {
    SCOPED_TRACE(fmt::format("{} batch {} lookup {}", method, batch, lookup));
    DecodeOptions options = testing::tandem_options(method, 4, batch);
    options.lookup = lookup;
    expect_the_cpus_ids([&] { return pair.run(options); }, {pair.primary.get(), pair.secondary.get()});
  };
  for (const testing::Kind kind : testing::kKinds) {
    expect_same(testing::identity_pair(kind, testing::kNoise), "tandem", 1);
    expect_same(testing::identity_pair(kind, testing::kNoise), "tandem-speed", 5);
    for (const int64_t batch : {1, 5}) {
      for (const bool block : {false, true}) expect_same(testing::features_pair(kind, 24, block), "speculative", batch);
    }
  }
  expect_same(testing::identity_shared_encoder(testing::kNoise), "speculative", 1);
  expect_same(testing::identity_shared_encoder(testing::kNoise), "bild", 5);
  expect_same(testing::features_pair(testing::Kind::kDecoderOnly), "speculative", 5, 1);
}

// Logits over several steps of a drafter: a step that is replayed overwrites those before it.
TEST_F(DeviceDecoding, ForcedAlphaOfTandemPairsIsTheCpus) {
  const std::vector<std::vector<int64_t>> sources{{5, 9, 14, 3, 1}, {7, 2}};
  const std::vector<std::vector<int64_t>> outputs{{4, 19, 3, 8, 8, 21, 2, 1}, {3, 3, 9, 11, 6}};
  for (const testing::Kind kind : testing::kKinds) {
    for (const int form : {0, 1, 2}) {
      const testing::TandemPair pair =
          form > 0 ? testing::features_pair(kind, 24, form == 2) : testing::random_pair(kind);
      const auto alpha = [&] {
        const GenerationModels models = pair.models();
        return models.drafter->forced_alpha(models.draft_target(), {sources, outputs}, {.temperature = 1}, 3);
      };
      const ForcedAlpha expected = alpha();
      pair.primary->to(test_device(), at::kDouble);
      pair.secondary->to(test_device(), at::kDouble);
      const ForcedAlpha found = alpha();
      EXPECT_EQ(found.positions, expected.positions);
      EXPECT_NEAR(found.alpha, expected.alpha, 1e-7);
    }
  }
}

TEST_F(DeviceDecoding, ModelsInBlocksGiveTheCpusIds) {
  const std::vector<std::vector<int64_t>> prompts = {
      {2, 3, 4, 5}, {9, 8, 7, 6, 5, 4, 3}, {11, 2, 13}, std::vector<int64_t>(40, 7)};
  model::TransformerConfig config = model::tiny_llama(2);
  config.initializer_range = 0.7;
  for (const bool deep : {false, true}) {
    const auto ids_on = [&](at::Device device) {
      const model::BlockDecoder decoder =
          deep ? model::deep_decoder(config, config, 3, 4, device) : model::block_decoder(config, 3, 4, device);
      GenerationModels models{.target = decoder.model.get()};
      return ids_of(Generator(models, device_options("sample", 1, 3)).generate(prompts));
    };
    EXPECT_EQ(ids_on(test_device()), ids_on(at::kCPU)) << deep;
  }
}

// Windows that ask a router, which keeps the texts' histories on the host while the device drafts.
TEST_F(DeviceDecoding, RoutersDraftAsOnTheCpu) {
  const testing::Pair pair;
  std::vector<int64_t> drafted;
  const auto run = [&] {
    const model::RouterPredictor router(testing::random_router(*pair.drafter), *pair.drafter);
    GenerationModels models = pair.models();
    models.router = &router;
    Results results = Generator(models, testing::assisted("router", 3)).generate(device_sources());
    drafted.push_back(total(results).drafted);
    return results;
  };
  expect_the_cpus_ids(run, {pair.target.get(), pair.drafter.get()});
  EXPECT_GT(drafted[0], 0);
  EXPECT_EQ(drafted[1], drafted[0]);
}

// Inputs of 1 to 40 tokens: some end before the drafter's positions do, some after, some begin after them. Target and
// drafter have padding, which is never put out.
TEST_F(DeviceLoopTest, DraftersWithFewerIdsAndPositionsLeaveTheRestToTheTarget) {
  const model::TransformerConfig config = model::tiny_llama();
  const testing::Letters letters(config.vocabulary - 3);
  for (const double temperature : {0.0, 1.0}) {
    Decoding decoding{config, device_options("speculative", temperature, 3)};
    decoding.endless = true;
    decoding.tokenizer = &letters;
    decoding.drafter = config;
    decoding.drafter->vocabulary -= 2;
    decoding.drafter->max_positions = 16;
    const auto found = ids_of(expect_the_hosts_results(decoding));
    if (temperature > 0) continue;
    decoding.options = device_options("greedy", 0, 3);
    EXPECT_EQ(found, ids_of(results_on(test_device(), decoding)));
  }
}

TEST_F(DeviceLoopTest, EndsAtStopStringsThatOnlyTheHostKnows) {
  const testing::Letters letters(26);
  Decoding decoding{model::tiny_llama(), device_options("speculative", 0, 5)};
  decoding.tokenizer = &letters;
  decoding.endless = true;
  const std::vector<int64_t> ids = led_by_host(decoding)[3].ids;
  ASSERT_GE(ids.size(), 6U);
  const std::vector<int32_t> two{static_cast<int32_t>(ids[4]), static_cast<int32_t>(ids[5])};
  decoding.options.stop_strings = {letters.decode(two)};
  expect_the_hosts_results(decoding);
}

TEST_F(DeviceLoopTest, FailsTheRowsWhoseLogitsAreNoNumbers) {
  for (const auto& [method, drafter] : {std::pair{"greedy", false}, {"speculative", false}, {"speculative", true}}) {
    SCOPED_TRACE(fmt::format("{} {}", method, drafter));
    Decoding decoding{model::tiny_mt5(), device_options(method, 0, 5)};
    decoding.broken_token = 9;  // of the first input
    decoding.breaks_drafter = drafter;
    expect_the_hosts_results(decoding);
  }
}

// A round is in flight when an error ends a batch; the next batch does not take its verdict.
TEST_F(DeviceLoopTest, AnErrorLeavesNothingToLaterBatches) {
  for (const char* method : {"greedy", "speculative"}) {
    Decoding decoding{model::tiny_t5(), device_options(method, 0, 5)};
    decoding.endless = true;
    const DecodingModels all = models_on(test_device(), decoding);
    Generator generator(all.models, decoding.options);
    const auto stop = [](const auto&...) { throw std::runtime_error("stopped"); };
    EXPECT_THROW(generator.generate({decoding.sources.data(), 2}, 0, {}, stop), std::runtime_error);
    EXPECT_EQ(ids_of(generator.generate(decoding.sources)), ids_of(led_by_host(decoding))) << method;
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
  expect_the_hosts_results(decoding);
}

// What earlier batches keep is given up where a batch needs the memory.
TEST_F(DeviceLoopTest, ABatchTakesTheMemoryOfEarlierOnes) {
  if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator's memory can be limited";
  const Decoding decoding{model::tiny_t5(), device_options("speculative", 0, 1)};
  const auto expected = ids_of(led_by_host(decoding));
  const DecodingModels all = models_on(test_device(), decoding);
  Generator generator(all.models, decoding.options);
  standin::take_peak_bytes();
  const size_t before = standin::take_peak_bytes();
  generator.generate({decoding.sources.data() + 4, 1});  // 40 tokens
  const size_t one = standin::take_peak_bytes() - before;
  all.target->free_states();
  for (const size_t share : {1, 4}) {
    standin::limit_bytes(before + one + one / share);
    EXPECT_EQ(ids_of(generator.generate(decoding.sources)), expected) << share;
  }
}

// Returns what a decoding of so many tokens asks of the device, and the target's runs.
std::pair<standin::Counts, int64_t> asked_for(Decoding decoding, int64_t tokens) {
  decoding.options.max_new_tokens = tokens;
  decoding.endless = true;
  standin::reset_counts();
  const Results results = results_on(test_device(), decoding);
  return {standin::counts(), total(results).target_runs};
}

// What a round asks of the device: the difference of two lengths. Inputs are decoded one by one.
TEST_F(DeviceLoopTest, ARoundIsOneOrTwoLaunchesOneCopyAndOneWait) {
  if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  for (const auto& [method, temperature, launches] :
       {std::tuple{"greedy", 0.0, 1}, {"sample", 1.0, 1}, {"speculative", 0.0, 2}, {"speculative", 1.0, 2}}) {
    SCOPED_TRACE(fmt::format("{} T {}", method, temperature));
    const Decoding decoding{model::tiny_t5(), device_options(method, temperature, 1)};
    const auto [few, few_rounds] = asked_for(decoding, 20);
    const auto [many, many_rounds] = asked_for(decoding, 60);
    const int64_t rounds = many_rounds - few_rounds;
    ASSERT_GT(rounds, 50);
    EXPECT_EQ(many.all_launches() - few.all_launches(), launches * rounds);
    EXPECT_EQ(many.copies_to_host - few.copies_to_host, rounds);
    EXPECT_EQ(many.copies_to_device, few.copies_to_device);
    EXPECT_EQ(many.waits - few.waits, rounds);
  }
}

// Without recordings: launches of a greedy token, from runs of two lengths. The numbers are those of today.
TEST_F(DeviceLoopTest, AGreedyTokenKeepsItsBudget) {
  if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  want_recordings(false);
  for (const auto& [config, a_layer, others] : {std::tuple{model::tiny_t5(), 9, 5}, {model::tiny_llama(3), 7, 4}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", config.family, at::toString(type)));
      const Decoding decoding{config, device_options("greedy", 0, 1), type};
      const standin::Counts few = asked_for(decoding, 4).first, many = asked_for(decoding, 12).first;
      const auto tokens = 8 * std::ssize(decoding.sources);
      EXPECT_LE(many.all_launches() - few.all_launches(), tokens * (a_layer * config.decoder_layers + others));
      EXPECT_LE(many.copies_to_device + many.copies_to_host - few.copies_to_device - few.copies_to_host, 2 * tokens);
      EXPECT_LE(many.waits - few.waits, tokens);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
