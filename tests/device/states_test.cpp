// States of decoders on the device: they stay between batches, when they serve again and nothing of before shows; and
// branches near their capacity.
#include <limits>

#include <gtest/gtest.h>

#include "model/transformer/decoder_state.h"
#include "tests/device/device.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

class DeviceStates : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_device::test_device().is_cpu()) GTEST_SKIP() << "CPUs keep no states";
    model_->requires_grad(false);
    model_->to(on_device::test_device(), at::kDouble);
  }

  EncoderStates encoded(int64_t length, uint64_t seed) {
    TokenBatch source = random_batch({length, 3}, 23, seed);
    source.tokens = source.tokens.to(on_device::test_device());
    return model_->encode(source);
  }

  at::Tensor first_logits(DecodeState& state) {
    StepInput input = step_input({{4, 5}, {6}});
    input.tokens = input.tokens.to(on_device::test_device());
    return model_->step(input, state).logits.to(at::kCPU);
  }

  std::unique_ptr<TransformerModel> model_ = varied_model(tiny_t5(), 4, at::kDouble);
};

uint64_t memory_of(TransformerModel& model, DecodeState& state) {
  return model.device_places(state).value().memory;
}

TEST_F(DeviceStates, ServeBatchesThatFit) {
  auto state = model_->begin(encoded(9, 1), 20);
  const uint64_t memory = memory_of(*model_, *state);
  model_->give_back(std::move(state));
  for (const int64_t capacity : {20, 64}) {
    state = model_->begin(encoded(30, 2), capacity);
    EXPECT_EQ(memory_of(*model_, *state), memory) << "rooms are multiples of 64";
    state->select_rows(std::vector<int64_t>{1});
    EXPECT_EQ(memory_of(*model_, *state), memory);
    model_->give_back(std::move(state));
  }
  state = model_->begin(encoded(9, 1), 65);
  EXPECT_NE(memory_of(*model_, *state), memory) << "more tokens";
  const auto longer = model_->begin(encoded(65, 1), 20);
  EXPECT_NE(memory_of(*model_, *longer), memory) << "longer sources";
  model_->free_states();
  EXPECT_NE(memory_of(*model_, *model_->begin(encoded(9, 1), 20)), memory);
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
    for (int step = 0; step < 3; ++step) {
      EXPECT_LT(difference(first_logits(*state), expected), 1e-12);
      state->rollback(std::vector<int64_t>{0, 0});
    }
    model_->give_back(std::move(state));
  }
}

// Recorded steps read the cross caches: longer sources give a kept state others.
TEST_F(DeviceStates, ForgetWhatWasRecordedOverMemoryThatIsReplaced) {
  const EncoderStates longer = encoded(65, 2);
  const at::Tensor expected = first_logits(*model_->begin(longer, 20));
  model_->free_states();
  auto state = model_->begin(encoded(9, 1), 20);
  for (int step = 0; step < 3; ++step) {
    first_logits(*state);
    state->rollback(std::vector<int64_t>{0, 0});
  }
  model_->give_back(std::move(state));
  state = model_->begin(longer, 20);
  for (int step = 0; step < 3; ++step) {
    EXPECT_LT(difference(first_logits(*state), expected), 1e-12);
    state->rollback(std::vector<int64_t>{0, 0});
  }
}

constexpr int64_t kCapacity = 4;

// Hidden states of branches, and the logits of the step after one was kept.
struct Branched {
  at::Tensor hidden;  // [2,3,D]
  at::Tensor logits;  // [2,1,V]
};

// Row 0 has no branch and no room for one; row 1 has three, the first of which is kept.
Branched branch_on(c10::Device device, TransformerConfig config) {
  const auto model = varied_model(config, 4, at::kDouble);
  model->requires_grad(false);
  model->to(device, at::kDouble);
  const auto state = model->begin(2, kCapacity);
  const auto step = [&](const std::vector<std::vector<int64_t>>& tokens) {
    StepInput input = step_input(tokens);
    input.tokens = input.tokens.to(device);
    return model->step(input, *state).logits.to(at::kCPU);
  };
  step({{3, 4, 5, 6}, {7, 8, 9}});
  auto& own = dynamic_cast<DecoderState&>(*state);
  const std::vector<int64_t> counts{0, 3};
  const StepLayout layout = own.siblings(counts, 3);
  const at::Tensor tokens = at::tensor({0, 0, 0, 10, 11, 12}, at::kLong).view({2, 3}).to(device);
  Branched result;
  const LayerRange all{0, config.decoder_layers};
  result.hidden = model->run_layers(all, model->embed(tokens, layout), layout, own).to(at::kCPU);
  own.select_branch(all, layout, std::vector<int64_t>{-1, 0});
  own.rollback(std::vector<int64_t>{3, 3});
  for (int i = 0; i < 3; ++i) {
    result.logits = step({{6}, {10}});
    own.rollback(std::vector<int64_t>{3, 3});
  }
  return result;
}

// Branches near the capacity stay inside the caches, and recorded steps survive them.
TEST(DeviceSiblings, NearTheCapacityEqualTheCpus) {
  for (const TransformerConfig& config : {tiny_llama(), tiny_gpt2()}) {
    SCOPED_TRACE(config.family);
    const Branched expected = branch_on(at::kCPU, config);
    const Branched found = branch_on(on_device::test_device(), config);
    EXPECT_LT(difference(found.hidden[1], expected.hidden[1]), 1e-12);
    EXPECT_LT(difference(found.logits, expected.logits), 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::model
