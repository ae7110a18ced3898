// Windows that ask a router, which reads the logits where they lie.
#include <set>

#include <gtest/gtest.h>

#include "infer/generator.h"
#include "model/kinds/router.h"
#include "tests/device/decoding.h"
#include "tests/device/test_device.h"
#include "tests/support/models.h"

namespace draftsmith::infer {
namespace {

using on_device::Decoding;
using on_device::test_device;

// Decodes with a router whose answers differ along a text.
std::vector<GenerationResult> routed_on(at::Device device, double threshold) {
  Decoding decoding{.config = model::tiny_t5(), .options = on_device::device_options("assisted", 0, 3)};
  decoding.options.window_rule = "router";
  decoding.options.threshold = threshold;
  on_device::DecodingModels loaded = on_device::models_on(device, decoding);
  const model::TransformerConfig& shape = loaded.drafter->config();
  model::RouterConfig config;
  config.top_k = 3;
  config.hidden = 16;
  config.width = shape.width;
  config.vocabulary = shape.vocabulary;
  config.drafter_hash = std::string(64, '0');
  const model::RouterPredictor router(model::Router(config, 2), *loaded.drafter);
  loaded.models.router = &router;
  return Generator(loaded.models, decoding.options).generate(decoding.sources);
}

TEST(DeviceRouterWindows, DraftAsOnTheCpu) {
  std::set<int64_t> runs;
  for (const double threshold : {0.0, 0.45, 0.48, 0.5, 0.52, 0.55, 1.1}) {
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
