// T5's relative bias on the device: made there of positions, without a copy, for all lengths.
#include "model/layers/relative_bias.h"

#include <gtest/gtest.h>

#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

TEST(DeviceRelativeBias, IsTheCpus) {
  const at::Tensor weight = random_tensor({32, 3});
  for (const bool bidirectional : {false, true}) {
    const RelativeBias expected(weight, bidirectional, 20);
    const RelativeBias found(weight.to(on_device::test_device()), bidirectional, 20);
    // Buckets are stored up to a distance of 83.
    for (const auto& [queries, keys] : {std::pair{1, 1}, {7, 5}, {83, 84}, {84, 2}, {2, 85}, {300, 250}}) {
      standin::reset_counts();
      const at::Tensor bias = found.full(queries, keys);
      EXPECT_EQ(standin::counts().copies_to_device, 0);
      EXPECT_TRUE(bias.cpu().equal(expected.full(queries, keys))) << queries << ' ' << keys;
    }
  }
}

}  // namespace
}  // namespace draftsmith::model
