// The source of the cross entropy's kernels, run on the host: it equals the operators on the CPU.
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
#include "train/objectives/losses.h"
// The shim comes first.
#include "train/objectives/kernels/cross_entropy.cu"

namespace draftsmith::train {
namespace {

using cuda_shim::Order;

// Logits, overwritten or not, and losses.
struct Computed {
  at::Tensor logits, losses;
};

Computed by_kernel(const at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope,
                   Order order = Order::kForward) {
  const Computed computed{logits.clone(), at::full({logits.size(0)}, 77, logits.options())};
  cuda_shim::run_kernel(cross_entropy_fp32, logits.size(0), {1024}, order, computed.logits, labels, computed.losses,
                        logits.size(1), smoothing, slope);
  return computed;
}

at::Tensor labels_of(int64_t rows, int64_t vocabulary) {
  return at::arange(rows, at::kLong).mul_(7).remainder_(vocabulary);
}

TEST(CrossEntropySource, EqualsTheOperators) {
  constexpr double kTolerance = 4e-6;
  for (const int64_t vocabulary : {1, 31, 5000}) {
    const at::Tensor logits = random_tensor({5, vocabulary}, 3) * 8 + 20;
    const at::Tensor labels = labels_of(5, vocabulary);
    for (const double smoothing : {0.0, 0.2}) {
      for (const bool slope : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", vocabulary, smoothing, slope));
        at::Tensor expected = logits.clone();
        const at::Tensor losses = cross_entropy_losses(expected, labels, smoothing, slope);
        const Computed found = by_kernel(logits, labels, smoothing, slope);
        EXPECT_LT(difference(found.losses, losses), kTolerance * std::max(1.0, largest(losses)));
        EXPECT_LT(difference(found.logits, expected), slope ? kTolerance : 1e-30);
        const Computed again = by_kernel(logits, labels, smoothing, slope, Order::kBackward);
        EXPECT_TRUE(at::equal(found.losses, again.losses));
        EXPECT_TRUE(at::equal(found.logits, again.logits));
      }
    }
  }
}

// Ids that cannot be chosen have logits of -infinity; NaN and infinity make the loss of their position NaN, which stops
// the training.
TEST(CrossEntropySource, TakesInfinitiesAndReportsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  at::Tensor logits = random_tensor({4, 40}, 3);
  logits[0].narrow(0, 10, 20).fill_(-kInfinity);
  logits[1][12] = std::numeric_limits<float>::quiet_NaN();
  logits[2][39] = kInfinity;
  const at::Tensor labels = labels_of(4, 40);
  at::Tensor expected = logits.clone();
  const at::Tensor losses = cross_entropy_losses(expected, labels, 0, true);
  const Computed found = by_kernel(logits, labels, 0, true);
  EXPECT_LT(difference(found.losses[0], losses[0]), 1e-5);
  EXPECT_LT(difference(found.logits[0], expected[0]), 1e-6);
  EXPECT_TRUE(at::isnan(found.losses[1]).item<bool>());
  EXPECT_TRUE(at::isnan(found.losses[2]).item<bool>());
  EXPECT_LT(difference(found.losses[3], losses[3]), 1e-5);
}

TEST(CrossEntropySource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(cross_entropy_source(), 1, 64);
}

}  // namespace
}  // namespace draftsmith::train
