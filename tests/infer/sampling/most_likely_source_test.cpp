// The source of the kernel of the most likely token, run on the host: it equals most_likely() on the CPU.
#include <limits>

#include <gtest/gtest.h>

#include "infer/sampling/most_likely_gpu.h"
#include "infer/sampling/sampling.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "infer/sampling/kernels/most_likely.cu"

namespace draftsmith::infer {
namespace {

template <class T, class Kernel>
at::Tensor chosen(const at::Tensor& logits, const Kernel& kernel, cuda_shim::Order order) {
  const at::Tensor tokens = at::full({logits.size(0)}, 77, at::kLong);
  cuda_shim::run_grid(
      {static_cast<unsigned>(logits.size(0))}, {1024},
      [&] {
        kernel(static_cast<const T*>(logits.const_data_ptr()),
               reinterpret_cast<long long*>(tokens.mutable_data_ptr<int64_t>()), static_cast<int>(logits.size(1)),
               kNoToken);
      },
      order);
  return tokens;
}

// Rows with ties, NaN and infinities.
at::Tensor odd_logits(int64_t vocabulary, at::ScalarType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  at::Tensor logits = random_tensor({7, vocabulary}, 1);
  logits[1].fill_(2);
  logits[2][vocabulary - 1] = kInfinity;
  logits[3][vocabulary / 2] = std::numeric_limits<double>::quiet_NaN();
  logits[4].fill_(-kInfinity);
  logits[4][vocabulary - 1] = -3;
  logits[5].round_();
  logits[6].fill_(-kInfinity);
  return logits.to(type);
}

template <class T, class Kernel>
void expect_choices(const Kernel& kernel, at::ScalarType type) {
  for (const int64_t vocabulary : {1, 31, 1100}) {
    const at::Tensor logits = odd_logits(vocabulary, type);
    const at::Tensor expected = most_likely(logits);
    for (const auto order : {cuda_shim::Order::kForward, cuda_shim::Order::kBackward}) {
      EXPECT_TRUE(at::equal(chosen<T>(logits, kernel, order), expected)) << at::toString(type) << ' ' << vocabulary;
    }
  }
}

TEST(MostLikelySource, EqualsTheCpusChoice) {
  expect_choices<float>(most_likely_fp32, at::kFloat);
  expect_choices<kernel::BFloat16>(most_likely_bf16, at::kBFloat16);
  expect_choices<kernel::Half>(most_likely_fp16, at::kHalf);
}

TEST(MostLikelySource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(most_likely_source(), 3, 64);
}

}  // namespace
}  // namespace draftsmith::infer
