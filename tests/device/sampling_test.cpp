// Warping on the device: the CPU's distributions, in one launch.
#include "infer/sampling/sampling.h"

#include <gtest/gtest.h>

#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer {
namespace {

using on_device::test_device;

TEST(DeviceSampling, WarpingIsTheCpusAndWaitsForNothing) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = (random_tensor({2, 3, 900}, 5) * 3).to(type);
    const at::Tensor there = logits.to(test_device());
    for (const Warping& warping :
         {Warping{}, Warping{0.7, 0, 1}, Warping{1, 20, 1}, Warping{1, 0, 0.9}, Warping{0.8, 50, 0.9, 0.01}}) {
      const at::Tensor expected = warp(logits, warping);
      standin::reset_counts();
      const at::Tensor found = warp(there, warping);
      EXPECT_EQ(standin::counts().waits, 0);
      EXPECT_EQ(found.device().type(), test_device().type());
      EXPECT_EQ(found.scalar_type(), at::kFloat);
      if (test_device().is_cuda()) {  // a token at the edge of top-p may be on its other side
        EXPECT_LT((found.cpu() - expected).abs().sum(-1).max().item<double>(), 2e-3);
        continue;
      }
      EXPECT_TRUE(found.cpu().gt(0).equal(expected.gt(0)));
      EXPECT_TRUE(found.cpu().allclose(expected, 1e-5, 0));
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
