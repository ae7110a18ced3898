// Times of steps on a device: the work is the CPU's, again and again.
#include <gtest/gtest.h>

#include "infer/costs/step_costs.h"
#include "tests/device/test_device.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer {
namespace {

// Returns the logits of a second timed step, after others were timed on the device.
at::Tensor timed_logits(const model::TransformerConfig& config, at::Device device) {
  const auto model = model::varied_model(config, 4, at::kDouble);
  model->requires_grad(false);
  model->to(device, at::kDouble);
  TimedModel timed(*model, random_context(model->info(), {.rows = 2, .source = 6, .length = 5}), 3);
  for (const int64_t tokens : {1, 3, 3}) {
    timed.go_back();
    EXPECT_GT(timed.run(tokens), 0);
  }
  return timed.output().logits.to(at::kCPU);
}

TEST(DeviceCosts, TimedStepsEqualTheCpus) {
  for (const model::TransformerConfig& config : {model::tiny_t5(), model::tiny_llama()}) {
    SCOPED_TRACE(config.family);
    EXPECT_LT(difference(timed_logits(config, on_device::test_device()), timed_logits(config, at::kCPU)), 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::infer
