// The sources of the kernels of draws, run on the host: they equal draws in tensor operations.
#include <limits>

#include <gtest/gtest.h>

#include "infer/acceptance/rejection_operator.h"
#include "infer/sampling/sampling.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "infer/sampling/kernels/draws.cu"

namespace draftsmith::infer {
namespace {

constexpr std::array kOrders{cuda_shim::Order::kForward, cuda_shim::Order::kBackward};

template <class T>
const T* numbers(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

long long* whole(const at::Tensor& tensor) {
  return static_cast<long long*>(tensor.mutable_data_ptr());
}

at::Tensor drawn(const at::Tensor& weights, const at::Tensor& uniforms, cuda_shim::Order order) {
  const at::Tensor tokens = at::full({weights.size(0)}, 77, at::kLong);
  cuda_shim::run_grid(
      {static_cast<unsigned>(weights.size(0))}, {1024},
      [&] {
        draw_fp32(numbers<float>(weights), numbers<double>(uniforms), whole(tokens), static_cast<int>(weights.size(1)));
      },
      order);
  return tokens;
}

// Rows of weights: any, few, all equal, one, none, not finite.
at::Tensor odd_weights(int64_t vocabulary) {
  at::Tensor weights = random_tensor({9, vocabulary}, 3).softmax(-1);
  weights[1] = weights[1].masked_fill(random_tensor({vocabulary}, 4).gt(-0.5), 0);
  weights[1][vocabulary / 2] = 0.25;
  weights[2].fill_(1);
  weights[3].zero_();
  weights[3][vocabulary - 1] = 1;
  weights[4].zero_();
  weights[5][vocabulary / 3] = std::numeric_limits<double>::quiet_NaN();
  weights[6][0] = std::numeric_limits<double>::infinity();
  weights[7].zero_();
  weights[7][0] = 0.5;
  return weights;
}

TEST(DrawsSource, DrawsEqualTheCpus) {
  for (const int64_t vocabulary : {1, 33, 1024, 2500}) {
    const at::Tensor weights = odd_weights(vocabulary);
    for (const double uniform : {0.0, 0.3, 0.77, 1 - 0x1p-40}) {
      const at::Tensor uniforms = at::full({weights.size(0)}, uniform, at::kDouble);
      const at::Tensor expected = draw(weights, uniforms);
      for (const auto order : kOrders) {
        const at::Tensor found = drawn(weights, uniforms, order);
        EXPECT_TRUE(found.equal(expected)) << vocabulary << ' ' << uniform << '\n' << found << expected;
      }
    }
  }
}

Decided rejected(const DraftedTokens& in, cuda_shim::Order order) {
  Decided out{at::full_like(in.counts, 77), at::full_like(in.counts, 77)};
  cuda_shim::run_grid(
      {static_cast<unsigned>(in.p.size(0))}, {1024},
      [&] {
        reject_fp32(numbers<float>(in.p), numbers<float>(in.q), numbers<long long>(in.tokens),
                    numbers<long long>(in.counts), numbers<double>(in.r_accept), numbers<double>(in.r_next),
                    whole(out.accepted), whole(out.next), static_cast<int>(in.tokens.size(1)),
                    static_cast<int>(in.p.size(2)));
      },
      order);
  return out;
}

// Drafts of 0 to 3 tokens from distributions near the target's; one row's are equal, one has a NaN.
DraftedTokens random_drafts(int64_t vocabulary, uint64_t seed) {
  constexpr int64_t kBatch = 12;
  constexpr int64_t kDrafted = 3;
  DraftedTokens in;
  const at::Tensor logits = random_tensor({kBatch, kDrafted + 1, vocabulary}, seed, at::kDouble);
  const at::Tensor near = logits.narrow(1, 0, kDrafted) + random_tensor({kBatch, kDrafted, vocabulary}, seed + 1);
  in.p = logits.softmax(-1).to(at::kFloat).contiguous();
  in.q = near.softmax(-1).to(at::kFloat).contiguous();
  in.q[0].copy_(in.p[0].narrow(0, 0, kDrafted));
  in.p[1][2].fill_(std::numeric_limits<double>::quiet_NaN());
  in.r_accept = random_tensor({kBatch, kDrafted}, seed + 2, at::kDouble).sigmoid();
  in.r_next = random_tensor({kBatch, kDrafted + 1}, seed + 3, at::kDouble).sigmoid();
  in.tokens = in.q.argmax(-1);
  in.counts = at::arange(kBatch, at::kLong).add_(3).remainder_(4);
  in.counts[1] = 3;
  in.r_accept[1].fill_(0);
  return in;
}

TEST(DrawsSource, RejectionEqualsTheCpus) {
  int64_t kept = 0;
  for (const int64_t vocabulary : {2, 70, 1500}) {
    for (uint64_t seed = 1; seed < 5; ++seed) {
      const DraftedTokens in = random_drafts(vocabulary, 10 * seed);
      const Decided expected = decide_by_rejection(in);
      for (const auto order : kOrders) {
        const Decided found = rejected(in, order);
        EXPECT_TRUE(found.accepted.equal(expected.accepted)) << found.accepted << expected.accepted;
        EXPECT_TRUE(found.next.equal(expected.next)) << found.next << expected.next;
      }
      EXPECT_EQ(expected.next[1].item<int64_t>(), kNoToken);
      kept += expected.accepted.sum().item<int64_t>();
    }
  }
  EXPECT_GT(kept, 50);
}

TEST(DrawsSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(draws_source(), 2, 64);
}

}  // namespace
}  // namespace draftsmith::infer
