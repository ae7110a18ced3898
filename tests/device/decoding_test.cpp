// Decoding on a device: every method gives the CPU's ids, for every family and kind of model.
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/router.h"
#include "tests/device/device.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer {
namespace {

using on_device::decode_on;
using on_device::Decoding;
using on_device::device_options;
using on_device::test_device;
using testing::tokens_of;

void move_to_device(model::TransformerModel& model) {
  model.to(test_device(), at::kDouble);
  model.pack();
}

TEST(DeviceDecoding, EveryMethodGivesTheCpusIds) {
  struct Setting {
    const char* method;
    double temperature;
    int64_t batch;
  };
  for (const model::TransformerConfig& config : model::tiny_families()) {
    for (const auto& [method, temperature, batch] :
         {Setting{"greedy", 0, 5}, {"sample", 1, 5}, {"speculative", 1, 1}, {"speculative", 0, 5}, {"bild", 0, 5}}) {
      SCOPED_TRACE(fmt::format("{} {} T {} batch {}", config.family, method, temperature, batch));
      const Decoding decoding{config, device_options(method, temperature, batch)};
      EXPECT_EQ(decode_on(test_device(), decoding), decode_on(at::kCPU, decoding));
    }
  }
}

// Methods inside a model: its first layers draft, decide or predict early.
TEST(DeviceInside, MethodsGiveTheCpusIds) {
  for (const char* method : {"early-exit", "calm", "ppd"}) {
    for (const char* family : {"t5", "llama"}) {
      SCOPED_TRACE(fmt::format("{} {}", method, family));
      DecodeOptions options = testing::exit_options(method, 3);
      options.max_new_tokens = 6;
      if (options.drafts_inside()) options.exit_layer = 2;
      const auto model = testing::exit_model({.family = family});
      const auto expected = tokens_of(testing::run_exit(*model, 0, options));
      move_to_device(*model);
      EXPECT_EQ(tokens_of(testing::run_exit(*model, 0, options)), expected);
    }
  }
}

TEST(DeviceDecoding, TandemPairsAndSharedEncodersGiveTheCpusIds) {
  const auto expect_same = [](const testing::TandemPair& pair, const char* method, int64_t batch) {
    SCOPED_TRACE(fmt::format("{} batch {}", method, batch));
    const DecodeOptions options = testing::tandem_options(method, 4, batch);
    const auto expected = tokens_of(pair.run(options));
    move_to_device(*pair.primary);
    move_to_device(*pair.secondary);
    EXPECT_EQ(tokens_of(pair.run(options)), expected);
  };
  for (const testing::Kind kind : testing::kKinds) {
    expect_same(testing::identity_pair(kind, testing::kNoise), "tandem", 1);
    expect_same(testing::identity_pair(kind, testing::kNoise), "tandem-speed", 5);
  }
  expect_same(testing::identity_shared_encoder(testing::kNoise), "speculative", 1);
  expect_same(testing::identity_shared_encoder(testing::kNoise), "bild", 5);
}

// Logits over several steps of a drafter: a step that is replayed overwrites those before it.
TEST(DeviceDecoding, ForcedAlphaOfTandemPairsIsTheCpus) {
  const std::vector<std::vector<int64_t>> sources{{5, 9, 14, 3, 1}, {7, 2}};
  const std::vector<std::vector<int64_t>> outputs{{4, 19, 3, 8, 8, 21, 2, 1}, {3, 3, 9, 11, 6}};
  for (const testing::Kind kind : testing::kKinds) {
    const testing::TandemPair pair = testing::random_pair(kind);
    const auto alpha = [&] {
      const GenerationModels models = pair.models();
      return models.drafter->forced_alpha(models.draft_target(), {sources, outputs}, {.temperature = 1}, 3);
    };
    const ForcedAlpha expected = alpha();
    for (model::TransformerModel* model : {pair.primary.get(), pair.secondary.get()}) {
      model->to(test_device(), at::kDouble);
    }
    const ForcedAlpha found = alpha();
    EXPECT_EQ(found.positions, expected.positions);
    EXPECT_NEAR(found.alpha, expected.alpha, 1e-7);
  }
}

// Block prediction and deep Tandems.
TEST(DeviceDecoding, ModelsInBlocksGiveTheCpusIds) {
  constexpr int64_t kBlock = 3;
  const std::vector<std::vector<int64_t>> prompts = {
      {2, 3, 4, 5}, {9, 8, 7, 6, 5, 4, 3}, {11, 2, 13}, std::vector<int64_t>(40, 7)};
  const auto make = [](at::Device device, const model::TransformerConfig& config, bool deep) {
    auto blocks = model::varied_model(model::block_prediction_config(config, kBlock), 4);
    std::unique_ptr<model::LanguageModel> made;
    if (!deep) {
      blocks->to(device, at::kDouble);
      made = std::make_unique<model::BlockPredictionModel>(std::move(blocks));
    } else {
      const at::Tensor projection = normal_tensor({config.width, config.width}, 0.5, 3, "projection", at::kDouble);
      auto tandem =
          std::make_unique<model::DeepTandemModel>(std::move(blocks), model::varied_model(config, 5), projection);
      tandem->to(device, at::kDouble);
      made = std::move(tandem);
    }
    return made;
  };
  model::TransformerConfig config = model::tiny_llama(2);
  config.initializer_range = 0.7;
  for (const bool deep : {false, true}) {
    const auto ids_on = [&](at::Device device) {
      const auto model = make(device, config, deep);
      GenerationModels models;
      models.target = model.get();
      return tokens_of(Generator(models, device_options("sample", 1, 3)).generate(prompts));
    };
    EXPECT_EQ(ids_on(test_device()), ids_on(at::kCPU)) << deep;
  }
}

// Windows that ask a router, which keeps the texts' histories on the host while the device drafts.
TEST(DeviceDecoding, RoutersDraftAsOnTheCpu) {
  const auto routed_on = [](at::Device device, double threshold) {
    Decoding decoding{.config = model::tiny_t5(), .options = device_options("assisted", 0, 3)};
    decoding.options.window_rule = "router";
    decoding.options.threshold = threshold;
    on_device::DecodingModels loaded = on_device::models_on(device, decoding);
    model::RouterConfig config;
    config.top_k = 3;
    config.hidden = 16;
    config.width = loaded.drafter->config().width;
    config.vocabulary = loaded.drafter->config().vocabulary;
    config.drafter_hash = std::string(64, '0');
    const model::RouterPredictor router(model::Router(config, 2), *loaded.drafter);
    loaded.models.router = &router;
    return Generator(loaded.models, decoding.options).generate(decoding.sources);
  };
  std::set<int64_t> runs;
  for (const double threshold : {0.0, 0.35, 1.1}) {
    const auto expected = routed_on(at::kCPU, threshold);
    const auto found = routed_on(test_device(), threshold);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].ids, expected[i].ids) << threshold;
      EXPECT_EQ(found[i].stats.drafted, expected[i].stats.drafted) << threshold;
    }
    runs.insert(total(expected).draft_runs);
  }
  EXPECT_GT(runs.size(), 2U) << "no threshold between the ends";
}

}  // namespace
}  // namespace draftsmith::infer
