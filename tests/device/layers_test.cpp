// Parts of a step on a device, with the CPU's numbers: linear layers of few rows in one launch with bias,
// post-operation and residual; T5's relative bias; warping.
#include <gtest/gtest.h>

#include "infer/sampling/sampling.h"
#include "model/layers/linear.h"
#include "model/transformer/stack.h"
#include "tests/device/device.h"
#include "tests/support/tensors.h"

namespace draftsmith::on_device {
namespace {

using model::Linear;
using model::PostOp;

// CPUs pack other operations, or none.
class DeviceLinearRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().is_cpu()) GTEST_SKIP() << "devices other than the CPU";
  }
};

// Returns the launches of a call; 0 where they are not counted.
template <class Call>
int64_t launches_of(const Call& call) {
  if (!on_standin()) return 0;
  standin::reset_counts();
  call();
  return standin::counts().all_launches();
}

Linear packed_on_device(const Linear& layer, PostOp then) {
  const at::Tensor bias = layer.bias().defined() ? layer.bias().to(test_device()) : at::Tensor();
  Linear moved(layer.weight().to(test_device()), bias);
  model::WeightArena arena;
  moved.pack(arena, then);
  return moved;
}

TEST_F(DeviceLinearRows, EqualTheCpusInOneLaunch) {
  const at::NoGradGuard no_grad;
  for (const PostOp then : {PostOp::kNone, PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    const Linear plain(random_tensor({24, 32}, 1), random_tensor({24}, 2));
    const Linear moved = packed_on_device(plain, then);
    for (const int64_t rows : {1, 5, 16}) {
      const at::Tensor x = random_tensor({rows, 1, 32}, 3);
      const at::Tensor on_device = x.to(test_device());
      const at::Tensor expected = model::applied(then, plain(x));
      EXPECT_EQ(moved.fuses(on_device), then != PostOp::kNone);
      EXPECT_LT(difference(moved(on_device).cpu(), expected), 1e-4);
      EXPECT_LE(launches_of([&] { moved(on_device); }), 1);
      if (then != PostOp::kNone) continue;
      const at::Tensor residual = random_tensor({rows, 1, 24}, 4);
      const at::Tensor added = residual.to(test_device());
      EXPECT_LT(difference(moved.add_to(added, on_device).cpu(), expected + residual), 1e-4);
      EXPECT_LE(launches_of([&] { moved.add_to(added, on_device); }), 1);
    }
  }
}

TEST_F(DeviceLinearRows, NormsAndGatesAreInTheSameLaunch) {
  const at::NoGradGuard no_grad;
  const Linear gate(random_tensor({24, 32}, 1));
  const Linear up(random_tensor({24, 32}, 2));
  const at::Tensor weight = random_tensor({32}, 5);
  const model::NormLayer norm(model::Norm::kRms, 1e-6, weight, {});
  const model::NormLayer moved_norm(model::Norm::kRms, 1e-6, weight.to(test_device()), {});
  const Linear moved_gate = packed_on_device(gate, PostOp::kSilu);
  const Linear moved_up = packed_on_device(up, PostOp::kNone);
  const at::Tensor x = random_tensor({3, 32}, 3);
  const at::Tensor on_device = x.to(test_device());
  ASSERT_TRUE(moved_gate.finishes(on_device));
  const at::Tensor normed = norm(x);
  EXPECT_LT(difference(moved_gate.gated(moved_norm, moved_up, on_device).cpu(), at::silu(gate(normed)) * up(normed)),
            1e-4);
  EXPECT_LE(launches_of([&] { moved_gate.gated(moved_norm, moved_up, on_device); }), 1);
  EXPECT_LT(difference(moved_up.after(moved_norm, on_device).cpu(), up(normed)), 1e-4);
  EXPECT_LE(launches_of([&] { moved_up.after(moved_norm, on_device); }), 1);
}

// What makes speculative decoding equal greedy decoding bit for bit, which no library promises.
TEST_F(DeviceLinearRows, ARowIsTheSameAmongOthersOnGpus) {
  if (!test_device().is_cuda()) GTEST_SKIP() << "kernels run on GPUs";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = random_tensor({1000, 4096}, 1, type).to(test_device());
    const at::Tensor x = random_tensor({model::most_linear_rows(type), 4096}, 2, type).to(test_device());
    const model::InputNorm norm{random_tensor({4096}, 3, type).to(test_device()), 1e-6};
    const auto y = [&](const at::Tensor& rows) { return model::linear_rows(rows, norm, {weight, {}}, PostOp::kNone); };
    const at::Tensor all = y(x);
    for (const int64_t rows : {1, 2, 3, 5, 8, 11}) {
      EXPECT_TRUE(at::equal(y(x.narrow(0, 16 - rows, rows)), all.narrow(0, 16 - rows, rows))) << rows;
    }
  }
}

// Made of positions there, without a copy, for all lengths.
TEST(DeviceRelativeBias, IsTheCpus) {
  const at::Tensor weight = random_tensor({32, 3});
  for (const bool bidirectional : {false, true}) {
    const model::RelativeBias expected(weight, bidirectional, 20);
    const model::RelativeBias found(weight.to(test_device()), bidirectional, 20);
    // Buckets are stored up to a distance of 83.
    for (const auto& [queries, keys] : {std::pair{1, 1}, {83, 84}, {84, 2}, {2, 85}, {300, 250}}) {
      standin::reset_counts();
      const at::Tensor bias = found.full(queries, keys);
      EXPECT_EQ(standin::counts().copies_to_device, 0);
      EXPECT_TRUE(bias.cpu().equal(expected.full(queries, keys))) << queries << ' ' << keys;
    }
  }
}

TEST(DeviceSampling, WarpingIsTheCpusAndWaitsForNothing) {
  using infer::Warping;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = (random_tensor({2, 3, 900}, 5) * 3).to(type);
    const at::Tensor there = logits.to(test_device());
    for (const Warping& warping : {Warping{}, Warping{0.7, 0, 1}, Warping{1, 0, 0.9}, Warping{0.8, 50, 0.9, 0.01}}) {
      const at::Tensor expected = infer::warp(logits, warping);
      standin::reset_counts();
      const at::Tensor found = infer::warp(there, warping);
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
}  // namespace draftsmith::on_device
