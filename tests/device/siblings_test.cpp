// Siblings on a device: branches near the capacity stay inside the caches, and recorded steps survive them.
#include <gtest/gtest.h>

#include "tests/device/test_device.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kCapacity = 4;

// Hidden states of branches, and the logits of the step after one was kept.
struct Branched {
  at::Tensor hidden;  // [2,3,D]
  at::Tensor logits;  // [2,1,V]
};

// Row 0 has no branch and no room for one; row 1 has three, the first of which is kept.
Branched branch_on(c10::Device device, TransformerConfig config) {
  const auto model = varied_model(config, 4, at::kDouble);
  model->requires_grad(false);
  model->to(device, at::kDouble);
  const auto state = model->begin(2, kCapacity);
  const auto step = [&](const std::vector<std::vector<int64_t>>& tokens) {
    StepInput input = step_input(tokens);
    input.tokens = input.tokens.to(device);
    return model->step(input, *state).logits.to(at::kCPU);
  };
  step({{3, 4, 5, 6}, {7, 8, 9}});
  auto& own = dynamic_cast<DecoderState&>(*state);
  const std::vector<int64_t> counts{0, 3};
  const StepLayout layout = own.siblings(counts, 3);
  const at::Tensor tokens = at::tensor({0, 0, 0, 10, 11, 12}, at::kLong).view({2, 3}).to(device);
  Branched result;
  const LayerRange all{0, config.decoder_layers};
  result.hidden = model->run_layers(all, model->embed(tokens, layout), layout, own).to(at::kCPU);
  own.select_branch(all, layout, std::vector<int64_t>{-1, 0});
  own.rollback(std::vector<int64_t>{3, 3});
  for (int i = 0; i < 3; ++i) {
    result.logits = step({{6}, {10}});
    own.rollback(std::vector<int64_t>{3, 3});
  }
  return result;
}

TEST(DeviceSiblings, NearTheCapacityEqualTheCpus) {
  for (const TransformerConfig& config : {tiny_llama(), tiny_gpt2()}) {
    SCOPED_TRACE(config.family);
    const Branched expected = branch_on(at::kCPU, config);
    const Branched found = branch_on(on_device::test_device(), config);
    EXPECT_LT(difference(found.hidden[1], expected.hidden[1]), 1e-12);
    EXPECT_LT(difference(found.logits, expected.logits), 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::model
