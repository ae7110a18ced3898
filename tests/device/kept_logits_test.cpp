// Users of a drafter's logits over several of its steps: a step that is replayed overwrites those before it.
#include <gtest/gtest.h>

#include "infer/acceptance/rejection.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/forced_alpha.h"
#include "infer/routers.h"
#include "infer/windows/fixed.h"
#include "tests/device/decoding.h"
#include "tests/device/test_device.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer {
namespace {

using draftsmith::on_device::test_device;

data::RouterRows collected_on(at::Device device) {
  const model::TransformerConfig config = model::tiny_t5();
  const auto model_of = [&](uint64_t seed) {
    auto model = model::varied_model(config, seed, at::kDouble);
    model->requires_grad(false);
    model->to(device, at::kDouble);
    return model;
  };
  const auto target = model_of(1);
  const auto drafter = model_of(2);
  RouterCollector collector(3);
  DraftParts parts{std::make_unique<ModelDrafter>(*drafter, drafter->info().vocabulary),
                   std::make_unique<FixedWindow>(4), std::make_unique<RejectionAcceptance>()};
  GenerationModels models;
  models.target = target.get();
  models.drafter = as_drafter(*drafter, nullptr);
  Generator generator(models, on_device::device_options("speculative", 1, 3),
                      collector.around(std::move(parts), config.eos));
  generator.generate(on_device::device_sources());
  return collector.drain();
}

TEST(DeviceKeptLogits, RoutersCollectTheCpusPositions) {
  const data::RouterRows expected = collected_on(at::kCPU);
  const data::RouterRows found = collected_on(test_device());
  ASSERT_GT(expected.size(), 20);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t n = 0; n < expected.entropy.size(); ++n) {
    EXPECT_NEAR(found.entropy[n], expected.entropy[n], 1e-6) << n;
    EXPECT_NEAR(found.disagreement[n], expected.disagreement[n], 1e-6) << n;
  }
}

ForcedAlpha alpha_of(const testing::TandemPair& pair) {
  const std::vector<std::vector<int64_t>> sources{{5, 9, 14, 3, 1}, {7, 2}};
  const std::vector<std::vector<int64_t>> outputs{{4, 19, 3, 8, 8, 21, 2, 1}, {3, 3, 9, 11, 6}};
  const GenerationModels models = pair.models();
  return models.drafter->forced_alpha(models.draft_target(), {sources, outputs}, {.temperature = 1}, 3);
}

TEST(DeviceKeptLogits, ForcedAlphaOfTandemPairsIsTheCpus) {
  for (const testing::Kind kind : testing::kKinds) {
    const testing::TandemPair pair = testing::random_pair(kind);
    const ForcedAlpha expected = alpha_of(pair);
    for (model::TransformerModel* model : {pair.primary.get(), pair.secondary.get()}) {
      model->unpack();
      model->to(test_device(), at::kDouble);
    }
    const ForcedAlpha found = alpha_of(pair);
    EXPECT_EQ(found.positions, expected.positions);
    EXPECT_NEAR(found.alpha, expected.alpha, 1e-9);
  }
}

}  // namespace
}  // namespace draftsmith::infer
