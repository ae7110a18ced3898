// Linear layers of few rows on a device: one launch with bias, post-operation and residual, and the CPU's numbers.
#include <gtest/gtest.h>

#include "model/layers/feed_forward.h"
#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
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

TEST_F(DeviceLinearRows, ManyRowsAndGradientsTakeTheOrdinaryWay) {
  const Linear plain(random_tensor({24, 32}, 1), random_tensor({24}, 2));
  const Linear moved = packed_on_device(plain, PostOp::kSilu);
  const at::Tensor few = random_tensor({2, 32}, 3).to(test_device());
  EXPECT_FALSE(moved.fuses(few));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(moved.fuses(few));
  const at::Tensor many = random_tensor({17, 32}, 3);
  EXPECT_FALSE(moved.fuses(many.to(test_device())));
  EXPECT_LT(difference(moved(many.to(test_device())).cpu(), plain(many)), 1e-4);
}

// A post-operation is applied once, also where inputs are converted.
TEST_F(DeviceLinearRows, InputsTakeTheWeightsDtype) {
  const at::NoGradGuard no_grad;
  const Linear plain(random_tensor({8, 16}, 1));
  const Linear moved = packed_on_device(plain, PostOp::kGelu);
  const at::Tensor x = random_tensor({2, 16}, 3, at::kHalf);
  const at::Tensor on_device = x.to(test_device());
  ASSERT_TRUE(moved.fuses(on_device));
  EXPECT_EQ(moved(on_device).scalar_type(), at::kFloat);
  EXPECT_LT(difference(moved(on_device).cpu(), at::gelu(plain(x))), 1e-4);
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

// Norms of another dtype or kind run before the layer.
TEST_F(DeviceLinearRows, OtherNormsRunBefore) {
  const at::NoGradGuard no_grad;
  const Linear plain(random_tensor({24, 32}, 1));
  const Linear moved = packed_on_device(plain, PostOp::kRelu);
  const at::Tensor weight = random_tensor({32}, 5);
  const at::Tensor bias = random_tensor({32}, 6);
  const at::Tensor x = random_tensor({3, 32}, 3);
  const model::NormLayer layer_norm(model::Norm::kLayer, 1e-6, weight.to(test_device()), bias.to(test_device()));
  EXPECT_LT(difference(moved.after(layer_norm, x.to(test_device())).cpu(),
                       at::relu(plain(at::layer_norm(x, {32}, weight, bias, 1e-6)))),
            1e-4);
  const model::NormLayer norm(model::Norm::kRms, 1e-6, weight, {});
  const model::NormLayer half_norm(model::Norm::kRms, 1e-6, weight.to(test_device(), at::kHalf), {});
  EXPECT_LT(difference(moved.after(half_norm, x.to(test_device())).cpu(), at::relu(plain(norm(x)))), 3e-2);
}

// What makes speculative decoding equal greedy decoding bit for bit, which no library promises.
TEST_F(DeviceLinearRows, ARowIsTheSameAmongOthersOnGpus) {
  if (!test_device().is_cuda()) GTEST_SKIP() << "kernels run on GPUs";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = random_tensor({1000, 4096}, 1, type).to(test_device());
    const at::Tensor x = random_tensor({model::kMostLinearRows, 4096}, 2, type).to(test_device());
    const model::InputNorm norm{random_tensor({4096}, 3, type).to(test_device()), 1e-6};
    const auto y = [&](const at::Tensor& rows) { return model::linear_rows(rows, norm, {weight, {}}, PostOp::kNone); };
    const at::Tensor all = y(x);
    for (const int64_t rows : {1, 2, 3, 5, 8, 11}) {
      EXPECT_TRUE(at::equal(y(x.narrow(0, 16 - rows, rows)), all.narrow(0, 16 - rows, rows))) << rows;
    }
  }
}

}  // namespace
}  // namespace draftsmith::on_device
