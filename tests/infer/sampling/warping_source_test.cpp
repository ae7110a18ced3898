// The source of the kernel of warping, run on the host: it keeps the tokens that the CPU keeps, with its probabilities.
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "infer/sampling/sampling.h"
#include "infer/sampling/warping_gpu.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "infer/sampling/kernels/warping.cu"

namespace draftsmith::infer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<Warping> kWarpings = {
    {1, 0, 1},      {0.7, 0, 1},    {1e-30, 0, 1},  {1, 1, 1},         {1.5, 40, 1},        {0.05, 50, 1},
    {1, 0, 0},      {1, 0, 0.3},    {0.6, 0, 0.95}, {1, 0, 0.9999999}, {1.3, 50, 0.9},      {2, 300, 0.5},
    {1, 0, 1, .05}, {1, 1500, .99}, {1, 2, 1e-9},   {1, 0, 1, 1},      {0.7, 40, 0.9, 0.2},
};

template <class T>
using WarpKernel = void (*)(const T*, float*, int, float, int, double, float);

template <class T>
at::Tensor warped_by(WarpKernel<T> kernel, const at::Tensor& logits, const Warping& warping,
                     cuda_shim::Order order = cuda_shim::Order::kForward, unsigned threads = 64) {
  const at::Tensor out = at::full(logits.sizes(), 77, at::kFloat);
  cuda_shim::run_grid(
      {static_cast<unsigned>(logits.size(0))}, {threads},
      [&] {
        kernel(static_cast<const T*>(logits.const_data_ptr()), out.mutable_data_ptr<float>(),
               static_cast<int>(logits.size(1)), static_cast<float>(1 / warping.temperature),
               static_cast<int>(warping.top_k), warping.top_p, static_cast<float>(warping.min_p));
      },
      order);
  return out;
}

// Rows: any, tied, all equal, some ruled out, almost equal, one far ahead, zeros of both signs.
at::Tensor many_logits(int64_t vocabulary) {
  at::Tensor logits = random_tensor({7, vocabulary}, 1) * 3;
  logits[1].round_();
  logits[2].fill_(-2.5);
  logits[3].narrow(0, vocabulary / 3, vocabulary / 2).fill_(-kInfinity);
  logits[4].mul_(1e-4).add_(8);
  logits[5].mul_(0.5);
  logits[5][vocabulary - 1] = 120;
  logits[6].copy_(logits[6].sign()).clamp_max_(0).mul_(logits[1].abs().clamp_max(1));  // -1, -0, 0
  return logits;
}

template <class T>
void expect_cpus(WarpKernel<T> kernel, const at::Tensor& logits, const Warping& warping, unsigned threads = 64) {
  SCOPED_TRACE(fmt::format("{} {} T {} k {} p {} min {}", at::toString(logits.scalar_type()), logits.size(1),
                           warping.temperature, warping.top_k, warping.top_p, warping.min_p));
  const at::Tensor expected = warp(logits, warping);
  const at::Tensor first = warped_by<T>(kernel, logits, warping, cuda_shim::Order::kForward, threads);
  EXPECT_TRUE(first.gt(0).equal(expected.gt(0))) << first.gt(0).sum(1) << expected.gt(0).sum(1);
  EXPECT_TRUE(first.allclose(expected, 1e-6, 0));
  EXPECT_TRUE(warped_by<T>(kernel, logits, warping, cuda_shim::Order::kBackward, threads).equal(first));
}

TEST(WarpingSource, KeepsTheCpusTokensWithTheirProbabilities) {
  for (const Warping& warping : kWarpings) expect_cpus<float>(warp_fp32, many_logits(1100), warping);
  for (const int64_t vocabulary : {1, 33}) {
    for (size_t i = 1; i < kWarpings.size(); i += 4) {
      expect_cpus<float>(warp_fp32, many_logits(vocabulary), kWarpings[i]);
    }
  }
}

TEST(WarpingSource, ReadsHalves) {
  for (const Warping& warping : {Warping{0.7, 0, 1}, Warping{1, 100, 0.9}}) {
    expect_cpus<kernel::BFloat16>(warp_bf16, many_logits(513).to(at::kBFloat16), warping);
    expect_cpus<kernel::Half>(warp_fp16, many_logits(513).to(at::kHalf), warping);
  }
}

TEST(WarpingSource, BlocksOfAllThreadsKeepTheSame) {
  expect_cpus<float>(warp_fp32, many_logits(2500).narrow(0, 0, 2), {1.3, 50, 0.9}, 1024);
}

// More tokens lie near the last kept one than are compared with each other, in one row even with the same logit.
TEST(WarpingSource, FindsTheLastTokenAmongManyAlike) {
  at::Tensor logits = random_tensor({3, 40'000}, 4);
  logits[0].mul_(1e-3);
  logits[1].fill_(3);
  logits[2].mul_(8).round_().div_(8);
  for (const Warping& warping : {Warping{1, 20'011, 1}, Warping{1, 0, 0.7}, Warping{0.9, 30'000, 0.37}}) {
    const at::Tensor expected = warp(logits, warping);
    const at::Tensor found = warped_by<float>(warp_fp32, logits, warping);
    EXPECT_TRUE(found.gt(0).equal(expected.gt(0))) << found.gt(0).sum(1) << expected.gt(0).sum(1);
    EXPECT_TRUE(found.allclose(expected, 1e-6, 0));
  }
}

TEST(WarpingSource, ARowIsTheSameAmongOthers) {
  const at::Tensor logits = many_logits(1100);
  const Warping warping{0.8, 200, 0.9};
  const at::Tensor all = warped_by<float>(warp_fp32, logits, warping);
  const at::Tensor one = warped_by<float>(warp_fp32, logits.narrow(0, 3, 1), warping);
  EXPECT_TRUE(one.equal(all.narrow(0, 3, 1)));
}

TEST(WarpingSource, RowsThatAreNotFiniteGiveNaN) {
  at::Tensor logits = random_tensor({5, 700}, 2);
  logits[0][699] = std::numeric_limits<float>::quiet_NaN();
  logits[1][3] = -std::numeric_limits<float>::quiet_NaN();
  logits[2][350] = kInfinity;
  logits[3].fill_(-kInfinity);
  for (const Warping& warping : {Warping{}, Warping{0.5, 3, 1}, Warping{1, 0, 0.5}, Warping{1, 4, 0.5, 0.1}}) {
    const at::Tensor found = warped_by<float>(warp_fp32, logits, warping);
    EXPECT_TRUE(found.narrow(0, 0, 4).isnan().all().item<bool>());
    EXPECT_TRUE(found[4].allclose(warp(logits, warping)[4], 1e-6, 0));
  }
}

TEST(WarpingSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(warping_source(), 3, 64);
}

}  // namespace
}  // namespace draftsmith::infer
