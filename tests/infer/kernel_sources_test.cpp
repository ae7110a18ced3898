// Sources of the kernels of rounds and draws, run on the host: they equal the CPU's operators, row by row.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "infer/loop/device_rows.h"
#include "infer/sampling/sampling.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
// The shim comes first.
#include "infer/loop/kernels/rounds.cu"
#include "infer/sampling/kernels/draws.cu"
#include "infer/sampling/kernels/most_likely.cu"

namespace draftsmith::infer {
namespace {

using cuda_shim::Order;
using cuda_shim::run_kernel;

constexpr int64_t kRows = 90;  // more than a block has
constexpr int64_t kColumns = 24, kWindow = 4;

class RoundsSource : public ::testing::Test {
 protected:
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }

  at::Tensor random_ids(at::IntArrayRef shape) {
    at::Tensor ids = at::empty(shape, at::kLong);
    for (int64_t i = 0; i < ids.numel(); ++i) ids.mutable_data_ptr<int64_t>()[i] = below(12);
    return ids;
  }

  // Rows somewhere between their prefix and their end.
  DeviceRows random_rows() {
    DeviceRows rows{.text = random_ids({kRows, kColumns}), .eos = at::tensor({1, 7}, at::kLong)};
    for (at::Tensor* part : {&rows.length, &rows.prefix, &rows.end, &rows.drafted, &rows.active}) {
      *part = at::zeros({kRows}, at::kLong);
    }
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t end = 8 + below(kColumns - kWindow - 8), length = 2 + below(end - 2);
      rows.end[b] = end;
      rows.length[b] = length;
      rows.prefix[b] = 1 + below(length - 1);
      rows.drafted[b] = length - 1 - below(2);
      rows.active[b] = below(6) > 0 ? 1 : 0;
    }
    return rows;
  }

  static DeviceRows copy(const DeviceRows& rows) {
    DeviceRows other = rows;
    for (at::Tensor* part : {&other.text, &other.length, &other.drafted, &other.active}) *part = part->clone();
    return other;
  }

  std::mt19937_64 random_{5};
};

TEST_F(RoundsSource, CommitsEqualTheCpus) {
  int64_t ended = 0;
  for (int trial = 0; trial < 8; ++trial) {
    const DeviceRows rows = random_rows();
    const RoundPlan plan = plan_round(rows, kWindow);
    at::Tensor drafted = random_ids({kRows, kWindow});
    drafted.masked_fill_(drafted.eq(11), kNoToken);
    const at::Tensor accepted = at::minimum(random_ids({kRows}), plan.counts);
    at::Tensor next = random_ids({kRows});
    next.masked_fill_(next.eq(11), kNoToken);
    const DeviceRows expected = copy(rows), found = copy(rows);
    commit_round(expected, drafted, plan.counts, accepted, next);
    run_kernel(::commit_round, 2, {64}, Order::kForward, found.text, found.length, found.drafted, found.active,
               found.end, found.eos, 2, drafted, plan.counts, accepted, next, kRows, kWindow, kColumns);
    EXPECT_TRUE(found.length.equal(expected.length));
    EXPECT_TRUE(found.drafted.equal(expected.drafted));
    EXPECT_TRUE(found.active.equal(expected.active));
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t length = expected.length[b].item<int64_t>();
      EXPECT_TRUE(found.text[b].narrow(0, 0, length).equal(expected.text[b].narrow(0, 0, length))) << b;
    }
    ended += (rows.active - found.active).sum().item<int64_t>();
  }
  EXPECT_GT(ended, 40);
}

TEST_F(RoundsSource, RandomNumbersEqualTheCpus) {
  DeviceRows rows = random_rows();
  rows.uniforms = at::rand({kRows, 20, 3}, at::kDouble);
  const at::Tensor expected = row_uniforms(rows, Draw::kNext, 1, 3), found = at::zeros_like(expected);
  run_kernel(::row_uniforms, 2, {256}, Order::kForward, rows.uniforms, rows.length, rows.prefix, found, kRows, 20,
             Draw::kNext, 1, 3);
  EXPECT_TRUE(found.equal(expected));
}

// ---- Draws ----

constexpr std::array kOrders{Order::kForward, Order::kBackward};

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
        const at::Tensor found = at::full({weights.size(0)}, 77, at::kLong);
        run_kernel(draw_fp32, weights.size(0), {1024}, order, weights, uniforms, found, weights.size(1));
        EXPECT_TRUE(found.equal(expected)) << vocabulary << ' ' << uniform << '\n' << found << expected;
      }
    }
  }
}

// Drafts of 0 to 3 tokens from distributions near the target's; one row's are equal, one has a NaN.
DraftedTokens random_drafts(int64_t vocabulary, uint64_t seed) {
  constexpr int64_t kBatch = 12, kDrafted = 3;
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
    for (const uint64_t seed : {1, 2}) {
      const DraftedTokens in = random_drafts(vocabulary, 10 * seed);
      const Decided expected = decide_by_rejection(in);
      for (const auto order : kOrders) {
        const Decided found{at::full_like(in.counts, 77), at::full_like(in.counts, 77)};
        run_kernel(reject_fp32, in.p.size(0), {1024}, order, in.p, in.q, in.tokens, in.counts, in.r_accept, in.r_next,
                   found.accepted, found.next, in.tokens.size(1), in.p.size(2));
        EXPECT_TRUE(found.accepted.equal(expected.accepted)) << found.accepted << expected.accepted;
        EXPECT_TRUE(found.next.equal(expected.next)) << found.next << expected.next;
      }
      EXPECT_EQ(expected.next[1].item<int64_t>(), kNoToken);
      kept += expected.accepted.sum().item<int64_t>();
    }
  }
  EXPECT_GT(kept, 25);
}

// ---- The most likely token ----

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

template <class Kernel>
void expect_choices(const Kernel& kernel, at::ScalarType type) {
  for (const int64_t vocabulary : {1, 31, 1100}) {
    const at::Tensor logits = odd_logits(vocabulary, type), expected = most_likely(logits);
    for (const auto order : kOrders) {
      const at::Tensor found = at::full({logits.size(0)}, 77, at::kLong);
      run_kernel(kernel, logits.size(0), {1024}, order, logits, found, logits.size(1), kNoToken);
      EXPECT_TRUE(at::equal(found, expected)) << at::toString(type) << ' ' << vocabulary;
    }
  }
}

TEST(MostLikelySource, EqualsTheCpusChoice) {
  expect_choices(most_likely_fp32, at::kFloat);
  expect_choices(most_likely_bf16, at::kBFloat16);
  expect_choices(most_likely_fp16, at::kHalf);
}

TEST(KernelGateOfRounds, CompileWithoutSpills) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(round_source(), 3, 64);
  expect_good_kernels(draws_source(), 2, 64);
  expect_good_kernels(most_likely_source(), 3, 64);
}

}  // namespace
}  // namespace draftsmith::infer
