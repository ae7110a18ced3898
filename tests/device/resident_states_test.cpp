// States that stay on the device between batches: when they serve again, and that nothing of before shows.
#include "model/transformer/resident_states.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/device/test_device.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

class ResidentStatesTest : public ::testing::Test {
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

TEST_F(ResidentStatesTest, ServeBatchesThatFit) {
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

TEST_F(ResidentStatesTest, ShowNothingOfTheBatchBefore) {
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

TEST_F(ResidentStatesTest, AreThoseOfTheModelAsItIs) {
  for (const int change : {0, 1, 2}) {
    auto state = model_->begin(encoded(9, 1), 20);
    const uint64_t memory = memory_of(*model_, *state);
    if (change == 0) model_->pack();
    if (change == 1) model_->unpack();
    if (change == 2) model_->to(on_device::test_device(), at::kFloat);
    model_->give_back(std::move(state));
    EXPECT_NE(memory_of(*model_, *model_->begin(encoded(9, 1), 20)), memory) << change;
  }
}

TEST_F(ResidentStatesTest, AreTheSmallestThatFit) {
  auto small = model_->begin(encoded(9, 1), 20), large = model_->begin(encoded(9, 1), 200);
  const uint64_t memory = memory_of(*model_, *small), other = memory_of(*model_, *large);
  model_->give_back(std::move(small));
  model_->give_back(std::move(large));
  const auto first = model_->begin(encoded(9, 1), 20), second = model_->begin(encoded(9, 1), 20);
  EXPECT_EQ(memory_of(*model_, *first), memory);
  EXPECT_EQ(memory_of(*model_, *second), other);
}

// Recorded steps read the cross caches: longer sources give a kept state others.
TEST_F(ResidentStatesTest, ForgetWhatWasRecordedOverMemoryThatIsReplaced) {
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

// Later batches begin with the prompts, not with their samples.
TEST_F(ResidentStatesTest, AreNoneWhoseRowsWereRepeated) {
  const auto llama = varied_model(tiny_llama(), 4, at::kDouble);
  llama->to(on_device::test_device(), at::kDouble);
  auto state = llama->begin(2, 20);
  state->select_rows(std::vector<int64_t>{0, 0, 1, 1});
  const uint64_t memory = memory_of(*llama, *state);
  llama->give_back(std::move(state));
  EXPECT_NE(memory_of(*llama, *llama->begin(4, 20)), memory);
}

}  // namespace
}  // namespace draftsmith::model
