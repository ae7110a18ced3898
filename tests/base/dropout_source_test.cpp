// The source of the dropout kernel, run on the host: it equals the CPU's dropout to the bit.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "tests/support/cuda_shim.h"
// The shim comes first.
#include "base/kernels/dropout.cu"

namespace draftsmith {
namespace {

constexpr DropoutKey kSourceKey{0x123456789abcdef0, 0x987654321, 7};

at::Tensor dropped_by_source(const at::Tensor& x, uint32_t threshold, cuda_shim::Order order) {
  at::Tensor out = at::full_like(x, 77);
  const int64_t elements = x.numel();
  const double scale = dropout_detail::scale_of(threshold);
  const auto run = [&](auto kernel) {
    cuda_shim::run_kernel(kernel, ((elements + 127) / 128 * 16 + 255) / 256, {256}, order, x, out, elements, threshold,
                          scale, kSourceKey.seed, kSourceKey.step, kSourceKey.site);
  };
  x.scalar_type() == at::kFloat  ? run(dropout_fp32)
  : x.scalar_type() == at::kHalf ? run(dropout_fp16)
                                 : run(dropout_bf16);
  return out;
}

TEST(DropoutSource, EqualsTheCpusDropoutToTheBit) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t elements : {1, 16, 17, 65, 128, 129, 2049}) {
      const at::Tensor x = normal_tensor({elements}, 30.0, 3, "x", type);
      for (const uint32_t threshold : {0u, 6554u, 65535u}) {
        const at::Tensor expected = masked_by_key(x, threshold, kSourceKey);
        EXPECT_TRUE(at::equal(dropped_by_source(x, threshold, cuda_shim::Order::kForward), expected))
            << at::toString(type) << ' ' << elements << ' ' << threshold;
      }
      EXPECT_TRUE(
          at::equal(dropped_by_source(x, 6554, cuda_shim::Order::kBackward), masked_by_key(x, 6554, kSourceKey)));
    }
  }
}

TEST(KernelNumbers, RoundAsLibTorchDoes) {
  const auto expect_equal = [](float value) {
    ASSERT_EQ(kernel::Rounding<kernel::Half>::of(value).bits, c10::Half(value).x) << value;
    ASSERT_EQ(kernel::Rounding<kernel::BFloat16>::of(value).bits, c10::BFloat16(value).x) << value;
  };
  uint32_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float any = __uint_as_float(state);
    if (!std::isnan(any)) expect_equal(any);
    // Exponents around those of fp16 and its subnormal numbers, and mantissas near ties.
    const unsigned exponent = 98 + (state >> 8) % 46;
    expect_equal(__uint_as_float((state & 0x80000000u) | exponent << 23 | (state >> 3 & 0x7ff001u)));
  }
  for (const float value : {0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f, INFINITY, -INFINITY, 6.1035156e-05f,
                            6.1005354e-05f, 5.9604645e-08f, 2.9802322e-08f, 2.9802326e-08f, 3.4e38f}) {
    expect_equal(value);
  }
  EXPECT_EQ(kernel::Rounding<kernel::BFloat16>::of(NAN).bits, 0x7fc0);
  EXPECT_TRUE(std::isnan(kernel::widen(kernel::Rounding<kernel::Half>::of(NAN))));
}

}  // namespace
}  // namespace draftsmith
