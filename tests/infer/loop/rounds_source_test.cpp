// The sources of the kernels of rounds, run on the host: they equal the CPU's operators, row by row.
#include <random>

#include <gtest/gtest.h>

#include "infer/loop/device_rows.h"
#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
// The shim comes first.
#include "infer/loop/kernels/rounds.cu"

namespace draftsmith::infer {
namespace {

constexpr int64_t kRows = 90;  // more than a block has
constexpr int64_t kColumns = 24;
constexpr int64_t kWindow = 4;

long long* data(const at::Tensor& tensor) {
  return static_cast<long long*>(tensor.mutable_data_ptr());
}

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
    DeviceRows rows;
    rows.text = random_ids({kRows, kColumns});
    rows.eos = at::tensor({1, 7}, at::kLong);
    for (at::Tensor* part : {&rows.length, &rows.prefix, &rows.end, &rows.drafted, &rows.active}) {
      *part = at::zeros({kRows}, at::kLong);
    }
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t end = 8 + below(kColumns - kWindow - 8);
      const int64_t length = 2 + below(end - 2);
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

TEST_F(RoundsSource, PlansEqualTheCpus) {
  for (const int64_t window : {int64_t{0}, kWindow}) {
    const DeviceRows rows = random_rows();
    const RoundPlan expected = plan_round(rows, window);
    const at::Tensor plan = at::full({(6 + 2 * window) * kRows}, -7, at::kLong);
    cuda_shim::run_grid({2}, {64}, [&] {
      ::plan_round(data(rows.text), data(rows.length), data(rows.drafted), data(rows.end), data(rows.active),
                   data(plan), kRows, kColumns, static_cast<int>(window));
    });
    const auto whole = at::empty({0}, at::kLong).set_(expected.last.storage());
    EXPECT_TRUE(plan.equal(whole.narrow(0, 0, plan.numel())));
    EXPECT_GT(expected.counts.sum().item<int64_t>(), window > 0 ? 50 : -1);
  }
}

TEST_F(RoundsSource, CommitsEqualTheCpus) {
  int64_t ended = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const DeviceRows rows = random_rows();
    const RoundPlan plan = plan_round(rows, kWindow);
    at::Tensor drafted = random_ids({kRows, kWindow});
    drafted.masked_fill_(drafted.eq(11), kNoToken);
    const at::Tensor accepted = at::minimum(random_ids({kRows}), plan.counts);
    at::Tensor next = random_ids({kRows});
    next.masked_fill_(next.eq(11), kNoToken);
    const DeviceRows expected = copy(rows);
    const DeviceRows found = copy(rows);
    commit_round(expected, drafted, plan.counts, accepted, next);
    cuda_shim::run_grid({2}, {64}, [&] {
      ::commit_round(data(found.text), data(found.length), data(found.drafted), data(found.active), data(found.end),
                     data(found.eos), 2, data(drafted), data(plan.counts), data(accepted), data(next), kRows,
                     static_cast<int>(kWindow), kColumns);
    });
    EXPECT_TRUE(found.length.equal(expected.length));
    EXPECT_TRUE(found.drafted.equal(expected.drafted));
    EXPECT_TRUE(found.active.equal(expected.active));
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t length = expected.length[b].item<int64_t>();
      EXPECT_TRUE(found.text[b].narrow(0, 0, length).equal(expected.text[b].narrow(0, 0, length))) << b;
    }
    ended += (rows.active - found.active).sum().item<int64_t>();
  }
  EXPECT_GT(ended, 100);
}

TEST_F(RoundsSource, RandomNumbersEqualTheCpus) {
  DeviceRows rows = random_rows();
  rows.uniforms = at::rand({kRows, 20, 3}, at::kDouble);
  const at::Tensor expected = row_uniforms(rows, Draw::kNext, 1, 3);
  const at::Tensor found = at::zeros_like(expected);
  cuda_shim::run_grid({2}, {256}, [&] {
    ::row_uniforms(rows.uniforms.const_data_ptr<double>(), data(rows.length), data(rows.prefix),
                   found.mutable_data_ptr<double>(), kRows, 20, static_cast<int>(Draw::kNext), 1, 3);
  });
  EXPECT_TRUE(found.equal(expected));
}

TEST_F(RoundsSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(round_source(), 3, 64);
}

}  // namespace
}  // namespace draftsmith::infer
