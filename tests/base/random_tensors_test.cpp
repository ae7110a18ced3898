// Counter-based random numbers, tensors of them, and dropout.
#include "base/random_tensors.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "base/aten.h"
#include "base/random.h"
#include "tests/support/captured_log.h"

namespace draftsmith {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Chi-square of 100,000 draws in 100 cells: 99 degrees of freedom, standard deviation 14; 99 + 6 * 14 is far beyond the
// 1e-6 quantile, and a bias of 5 % in one tenth of the cells would exceed it.
void expect_uniform(const std::vector<int>& counts, int draws) {
  const double expected = static_cast<double>(draws) / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 183);
  EXPECT_GT(chi_square, 40);
}

TEST(CounterRandom, UniformNumbersAreUniform) {
  constexpr int kDraws = 100'000;
  const CounterRandom random(17, "uniform");
  std::vector<int> doubles(100), integers(100);
  for (int i = 0; i < kDraws; ++i) {
    const auto counter = static_cast<uint64_t>(i);
    const double u = random.uniform(counter);
    ASSERT_TRUE(u >= 0 && u < 1);
    ++doubles[static_cast<size_t>(u * 100)];
    ++integers[random.below(counter, 100)];
  }
  expect_uniform(doubles, kDraws);
  expect_uniform(integers, kDraws);
}

TEST(CounterRandom, NormalNumbersHaveTheirMoments) {
  constexpr int kDraws = 200'000;
  const CounterRandom random(5, "normal");
  double sum = 0, squares = 0, fourths = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal(static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x, squares += x * x, fourths += x * x * x * x;
  }
  // Six standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kDraws, 0, 6 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 6 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourths / kDraws, 3, 6 * std::sqrt(96.0 / kDraws));
}

TEST(RandomSequence, ResumesFromItsPosition) {
  RandomSequence whole{CounterRandom(9, "s")};
  for (int i = 0; i < 10; ++i) whole.uniform();
  RandomSequence resumed{CounterRandom(9, "s"), whole.position};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(whole.below(1000), resumed.below(1000));
}

constexpr DropoutKey kKey{0x123456789abcdef0, 0x987654321, 7};

// The mask's definition, element by element, from the tested generator.
at::Tensor reference_mask(int64_t elements, uint32_t threshold, const DropoutKey& key) {
  at::Tensor mask = at::zeros({elements});
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t in_group = i % 128;
    const auto block = static_cast<uint32_t>(i / 128 * 16 + in_group % 16);
    const PhiloxBlock words =
        philox4x32({block, key.site, static_cast<uint32_t>(key.step), static_cast<uint32_t>(key.step >> 32)},
                   {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
    const uint32_t word = words[static_cast<size_t>(in_group / 16 % 4)];
    const uint32_t bits = in_group < 64 ? word & 0xffff : word >> 16;
    if (bits >= threshold) mask[i] = 65536.0 / (65536.0 - threshold);
  }
  return mask;
}

// Returns what dropout multiplies a tensor of `shape` with.
at::Tensor dropout_mask(at::IntArrayRef shape, double probability, const DropoutKey& key, at::TensorOptions options) {
  return dropout(at::ones(shape, options), probability, key);
}

TEST(DropoutMask, EqualsItsDefinition) {
  for (const int64_t elements : {1, 63, 64, 65, 127, 128, 129, 5000}) {
    const at::Tensor mask = dropout_mask({elements}, 0.25, kKey, at::kFloat);
    EXPECT_TRUE(at::equal(mask, reference_mask(elements, 16384, kKey))) << elements;
  }
}

TEST(DropoutMask, IsTheSameForEveryNumberOfThreadsAndDtype) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = dropout_mask({300, 501}, 0.1, kKey, at::kFloat);
  at::set_num_threads(3);
  const at::Tensor three = dropout_mask({300, 501}, 0.1, kKey, at::kFloat);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, three));
  for (const auto dtype : {at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(dropout_mask({300, 501}, 0.1, kKey, dtype).ne(0), one.ne(0)));
  }
}

TEST(DropoutMask, OfHalfPrecisionIsTheRoundedProduct) {
  const DropoutKey key{.seed = 4, .step = 5, .site = 6};
  const uint32_t threshold = dropout_detail::threshold_of(0.1);
  // Every bit pattern, and a length that ends within a group.
  const at::Tensor words = at::arange(-32768, 32768 + 77, at::kInt).to(at::kShort);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = words.view(type), found = masked_by_key(x, threshold, key);
    const at::Tensor expected = masked_by_key(x.to(at::kFloat), threshold, key).to(type);
    EXPECT_TRUE(found.isnan().equal(expected.isnan())) << type;
    EXPECT_TRUE(found.view(at::kShort)
                    .masked_fill(found.isnan(), 0)
                    .equal(expected.view(at::kShort).masked_fill(expected.isnan(), 0)))
        << type;
  }
}

TEST(Dropout, EqualsTheProductWithItsMaskForwardAndBackward) {
  const at::Tensor x = normal_tensor({40, 77}, 1.0, 3, "x", at::kFloat).requires_grad_();
  const at::Tensor y = dropout(x.transpose(0, 1), 0.3, kKey), mask = dropout_mask({77, 40}, 0.3, kKey, at::kFloat);
  EXPECT_TRUE(at::equal(y, x.detach().transpose(0, 1) * mask));
  const at::Tensor gradient = normal_tensor({77, 40}, 1.0, 4, "g", at::kFloat);
  y.backward(gradient);
  EXPECT_TRUE(at::equal(x.grad(), (gradient * mask).transpose(0, 1)));
}

TEST(Dropout, RefusesWhatMakesNoSense) {
  EXPECT_THROW(dropout(at::ones({3}), 1.0, kKey), std::logic_error);
  EXPECT_THROW(dropout(at::ones({3}), -0.1, kKey), std::logic_error);
  EXPECT_THROW(dropout_mask({3}, 0.5, kKey, at::kLong), std::logic_error);
  EXPECT_TRUE(at::equal(dropout_mask({100}, 0.0, kKey, at::kFloat), at::ones({100})));
  // The nearest multiple of 2^-16 would drop everything.
  EXPECT_TRUE(at::isfinite(dropout_mask({1000}, 0.999999, kKey, at::kFloat)).all().item<bool>());
}

TEST(DropoutMaskGpu, EqualsTheCpus) {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const CapturedLog log;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor cpu = dropout_mask({33, 129}, 0.1, kKey, dtype);
    const at::Tensor gpu = dropout_mask({33, 129}, 0.1, kKey, at::TensorOptions(dtype).device(at::kCUDA));
    EXPECT_TRUE(at::equal(cpu, gpu.cpu()));
    const at::Tensor x = normal_tensor({33, 129}, 1.0, 3, "x", dtype);
    EXPECT_TRUE(at::equal(dropout(x, 0.1, kKey), dropout(x.to(at::kCUDA), 0.1, kKey).cpu()));
  }
  EXPECT_EQ(log.text(), "") << "the CPU ran in place of the kernel";
}

}  // namespace
}  // namespace draftsmith
