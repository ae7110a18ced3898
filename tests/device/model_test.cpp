// Parts of models on a device, with the CPU's numbers: linear layers of few rows in one launch with bias,
// post-operation and residual; warping. States of decoders stay between batches, when they serve again and nothing of
// before shows.
#include <limits>

#include <gtest/gtest.h>

#include "infer/sampling/sampling.h"
#include "model/layers/linear.h"
#include "model/transformer/decoder_state.h"
#include "tests/device/device.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using on_device::test_device;

// CPUs pack other operations, or none.
TEST(DeviceLinearRows, EqualTheCpusInOneLaunch) {
  if (test_device().is_cpu()) GTEST_SKIP() << "devices other than the CPU";
  const at::NoGradGuard no_grad;
  const auto expect_in_one_launch = [](const auto& call, const at::Tensor& expected) {
    standin::reset_counts();
    const at::Tensor found = call();
    EXPECT_LE(standin::counts().all_launches(), 1);
    EXPECT_LT(difference(found.cpu(), expected), 1e-4);
  };
  for (const PostOp then : {PostOp::kNone, PostOp::kRelu, PostOp::kGelu, PostOp::kGeluTanh, PostOp::kSilu}) {
    const Linear plain(random_tensor({24, 32}, 1), random_tensor({24}, 2));
    Linear moved(plain.weight().to(test_device()), plain.bias().to(test_device()));
    WeightArena arena;
    moved.pack(arena, then);
    for (const int64_t rows : {1, 5, 16}) {
      const at::Tensor x = random_tensor({rows, 1, 32}, 3), there = x.to(test_device());
      EXPECT_EQ(moved.fuses(there), then != PostOp::kNone);
      expect_in_one_launch([&] { return moved(there); }, applied(then, plain(x)));
      if (then != PostOp::kNone) continue;
      const at::Tensor residual = random_tensor({rows, 1, 24}, 4), added = residual.to(test_device());
      expect_in_one_launch([&] { return moved.add_to(added, there); }, plain(x) + residual);
    }
  }
}

// What makes speculative decoding equal greedy decoding bit for bit, which no library promises.
TEST(DeviceLinearRows, ARowIsTheSameAmongOthersOnGpus) {
  if (!test_device().is_cuda()) GTEST_SKIP() << "kernels run on GPUs";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = random_tensor({1000, 4096}, 1, type).to(test_device());
    const at::Tensor x = random_tensor({most_linear_rows(type), 4096}, 2, type).to(test_device());
    const InputNorm norm{random_tensor({4096}, 3, type).to(test_device()), 1e-6};
    const auto y = [&](const at::Tensor& rows) { return linear_rows(rows, norm, {weight, {}}, PostOp::kNone); };
    const at::Tensor all = y(x);
    for (const int64_t rows : {1, 2, 3, 5, 8, 11}) {
      EXPECT_TRUE(at::equal(y(x.narrow(0, 16 - rows, rows)), all.narrow(0, 16 - rows, rows))) << rows;
    }
  }
}

TEST(DeviceSampling, WarpingIsTheCpusAndWaitsForNothing) {
  using infer::Warping;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = (random_tensor({2, 3, 900}, 5) * 3).to(type), there = logits.to(test_device());
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

class DeviceStates : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().is_cpu()) GTEST_SKIP() << "CPUs keep no states";
    model_->requires_grad(false);
    model_->to(test_device(), at::kDouble);
  }

  EncoderStates encoded(int64_t length, uint64_t seed) {
    TokenBatch source = random_batch({length, 3}, 23, seed);
    source.tokens = source.tokens.to(test_device());
    return model_->encode(source);
  }

  uint64_t memory_of(DecodeState& state) { return model_->device_places(state).value().memory; }

  at::Tensor first_logits(DecodeState& state) {
    StepInput input = step_input({{4, 5}, {6}});
    input.tokens = input.tokens.to(test_device());
    return model_->step(input, state).logits.to(at::kCPU);
  }

  // Requires the logits of the first step, which is done, recorded and replayed.
  void expect_logits(DecodeState& state, const at::Tensor& expected) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_LT(difference(first_logits(state), expected), 1e-12);
      state.rollback(std::vector<int64_t>{0, 0});
    }
  }

  std::unique_ptr<TransformerModel> model_ = varied_model(tiny_t5(), 4, at::kDouble);
};

TEST_F(DeviceStates, ServeBatchesThatFit) {
  auto state = model_->begin(encoded(9, 1), 20);
  const uint64_t memory = memory_of(*state);
  model_->give_back(std::move(state));
  for (const int64_t capacity : {20, 64}) {
    state = model_->begin(encoded(30, 2), capacity);
    EXPECT_EQ(memory_of(*state), memory) << "rooms are multiples of 64";
    state->select_rows(std::vector<int64_t>{1});
    EXPECT_EQ(memory_of(*state), memory);
    model_->give_back(std::move(state));
  }
  state = model_->begin(encoded(9, 1), 65);
  EXPECT_NE(memory_of(*state), memory) << "more tokens";
  const auto longer = model_->begin(encoded(65, 1), 20);
  EXPECT_NE(memory_of(*longer), memory) << "longer sources";
  model_->free_states();
  EXPECT_NE(memory_of(*model_->begin(encoded(9, 1), 20)), memory);
}

TEST_F(DeviceStates, ShowNothingOfTheBatchBefore) {
  const EncoderStates source = encoded(9, 1);
  const at::Tensor expected = first_logits(*model_->begin(source, 20));
  EncoderStates broken = encoded(40, 2);
  broken.hidden.fill_(std::numeric_limits<double>::quiet_NaN());
  for (int i = 0; i < 3; ++i) {
    auto state = model_->begin(broken, 20);
    first_logits(*state);
    model_->give_back(std::move(state));
    state = model_->begin(source, 20);
    expect_logits(*state, expected);
    model_->give_back(std::move(state));
  }
}

// Recorded steps read the cross caches: longer sources give a kept state others.
TEST_F(DeviceStates, ForgetWhatWasRecordedOverMemoryThatIsReplaced) {
  const EncoderStates shorter = encoded(9, 1), longer = encoded(65, 2);
  const at::Tensor of_shorter = first_logits(*model_->begin(shorter, 20));
  const at::Tensor of_longer = first_logits(*model_->begin(longer, 20));
  model_->free_states();
  auto state = model_->begin(shorter, 20);
  expect_logits(*state, of_shorter);
  model_->give_back(std::move(state));
  state = model_->begin(longer, 20);
  expect_logits(*state, of_longer);
}

// Returns the hidden states of branches [3,D] of row 1, and its logits [V] of the step after the first was kept. Row 0
// has no branch and no room for one.
std::pair<at::Tensor, at::Tensor> branch_on(c10::Device device, const TransformerConfig& config) {
  const auto model = varied_model(config, 4, at::kDouble);
  model->requires_grad(false);
  model->to(device, at::kDouble);
  const auto state = model->begin(2, 4);
  const auto step = [&](const std::vector<std::vector<int64_t>>& tokens) {
    StepInput input = step_input(tokens);
    input.tokens = input.tokens.to(device);
    return model->step(input, *state).logits[1].to(at::kCPU);
  };
  step({{3, 4, 5, 6}, {7, 8, 9}});
  auto& own = dynamic_cast<DecoderState&>(*state);
  const StepLayout layout = own.siblings(std::vector<int64_t>{0, 3}, 3);
  const at::Tensor tokens = at::tensor({0, 0, 0, 10, 11, 12}, at::kLong).view({2, 3}).to(device);
  const LayerRange all{0, config.decoder_layers};
  const at::Tensor hidden = model->run_layers(all, model->embed(tokens, layout), layout, own)[1].to(at::kCPU);
  own.select_branch(all, layout, std::vector<int64_t>{-1, 0});
  own.rollback(std::vector<int64_t>{3, 3});
  at::Tensor logits;
  for (int i = 0; i < 3; ++i) {
    logits = step({{6}, {10}});
    own.rollback(std::vector<int64_t>{3, 3});
  }
  return {hidden, logits};
}

// Branches near the capacity stay inside the caches, and recorded steps survive them.
TEST(DeviceSiblings, NearTheCapacityEqualTheCpus) {
  for (const TransformerConfig& config : {tiny_llama(), tiny_gpt2()}) {
    SCOPED_TRACE(config.family);
    const auto expected = branch_on(at::kCPU, config), found = branch_on(test_device(), config);
    EXPECT_LT(difference(found.first, expected.first), 1e-12);
    EXPECT_LT(difference(found.second, expected.second), 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::model
