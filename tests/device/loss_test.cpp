// Losses of logits on the device: in fp32 also where matrix products are in bf16, and one launch for cross entropy.
#include <gtest/gtest.h>

#include "base/device_tensors.h"
#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"
#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {
namespace {

using on_device::test_device;

constexpr int64_t kPositions = 40, kIds = 50, kWidth = 16;

at::Tensor labels() {
  return at::arange(kPositions, at::kLong).mul_(7).remainder_(kIds);
}

// Loss and gradients, on the CPU.
struct LossAndGradients {
  at::Tensor loss, hidden, head;
};

LossAndGradients computed(const at::Tensor& hidden, const at::Tensor& head, double smoothing, at::Device device,
                          bool autocast) {
  const at::Tensor rows = hidden.detach().to(device).requires_grad_(true);
  const at::Tensor weight = head.detach().to(device).requires_grad_(true);
  const auto loss = cross_entropy_loss(labels().to(device), smoothing);
  at::Tensor sum;
  {
    const AutocastScope scope(device.type(), autocast);
    sum = linear_loss({{.hidden = rows, .head = {.weight = weight}, .loss = loss.get()}});
  }
  sum.backward();
  return {sum.detach().cpu(), rows.grad().cpu(), weight.grad().cpu()};
}

TEST(DeviceLoss, CrossEntropyIsTheCpus) {
  const at::Tensor hidden = random_tensor({kPositions, kWidth}, 1, at::kDouble);
  const at::Tensor head = random_tensor({kIds, kWidth}, 2, at::kDouble);
  for (const double smoothing : {0.0, 0.2}) {
    standin::reset_counts();
    const LossAndGradients found = computed(hidden, head, smoothing, test_device(), false);
    if (on_device::on_standin()) {
      EXPECT_EQ(standin::counts().launches.at("cross_entropy"), 1);
      EXPECT_FALSE(standin::counts().launches.contains("_log_softmax"));
    }
    const LossAndGradients expected = computed(hidden, head, smoothing, at::kCPU, false);
    EXPECT_LT(difference(found.loss, expected.loss), 1e-12 * largest(expected.loss));
    EXPECT_LT(difference(found.hidden, expected.hidden), 1e-12);
    EXPECT_LT(difference(found.head, expected.head), 1e-12);
  }
}

// Rounded to bf16, logits of about 100 would be wrong by up to .25.
TEST(DeviceLoss, LogitsAreInFp32WhereProductsAreInBf16) {
  const at::Tensor hidden = random_tensor({kPositions, kWidth}, 1) * 8;
  const at::Tensor head = random_tensor({kIds, kWidth}, 2) * 3;
  const auto rounded = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16).to(at::kDouble); };
  const LossAndGradients exact = computed(rounded(hidden), rounded(head), 0, at::kCPU, false);
  const LossAndGradients found = computed(hidden, head, 0, test_device(), true);
  EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
  EXPECT_LT(difference(found.loss, exact.loss), 1e-5 * largest(exact.loss));
}

}  // namespace
}  // namespace draftsmith::train
