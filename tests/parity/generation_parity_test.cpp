// Stop strings end outputs where Transformers ends them, and logits are warped into its samplers' distributions.
#include <gtest/gtest.h>

#include "base/json.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/rows.h"
#include "infer/sampling/sampling.h"
#include "tests/parity/transformers_reference.h"

namespace draftsmith::infer {
namespace {

class GenerationParity : public model::NeedsTransformers {
 protected:
  static const model::TransformersReference& reference() {
    return model::TransformersReference::of("parity_generation.py");
  }
};

TEST_F(GenerationParity, StopStringsEndOutputsAtTheSameToken) {
  const auto tokenizer = data::load_tokenizer(reference().directory("tokenizer"));
  int ended = 0;
  const auto cases = load_json(reference().root() / "stops.json");
  for (const auto& one : cases) {
    const auto strings = std::make_shared<const std::vector<std::string>>(one.at("strings"));
    StopStringMatcher matcher(strings, *tokenizer);
    int64_t end = -1, count = 0;
    for (const int64_t id : one.at("ids").get<std::vector<int64_t>>()) {
      ++count;
      if (!matcher.add(id)) continue;
      end = count;
      break;
    }
    EXPECT_EQ(end, one.at("end").get<int64_t>()) << one.dump();
    if (end >= 0) ++ended;
  }
  EXPECT_GT(ended, 100);
  EXPECT_LT(ended, std::ssize(cases));
}

TEST_F(GenerationParity, WarpedDistributionsAreThoseOfTheSamplers) {
  for (const auto& one : load_json(reference().root() / "warps.json")) {
    const Warping warping{one.at("temperature"), one.at("top_k"), one.at("top_p"), one.at("min_p")};
    const auto logits = one.at("logits").get<std::vector<double>>();
    const auto expected = one.at("probabilities").get<std::vector<double>>();
    const at::Tensor found = warp(at::tensor(logits, at::kDouble).unsqueeze(0), warping);
    ASSERT_EQ(found.numel(), std::ssize(expected));
    for (size_t token = 0; token < expected.size(); ++token) {
      EXPECT_NEAR(found[0][static_cast<int64_t>(token)].item<double>(), expected[token], 1e-6)
          << token << " under " << one.dump().substr(0, 80);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
