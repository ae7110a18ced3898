// What inner methods need: layer ranges, K/V from other hidden states, branch slots.
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

class DecodeStateLayers : public testing::Test {
 protected:
  std::unique_ptr<TransformerModel> model_ = tiny_model(tiny_t5(), at::kDouble);
  TokenBatch source_ = random_batch({5, 8}, 23, 1);
  EncoderStates encoded_ = model_->encode(source_);
  std::unique_ptr<DecodeState> fresh() { return model_->begin(encoded_, 16); }

  void expect_same_caches(DecodeState& a, DecodeState& b) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(transformer_state(a).keys(layer).sizes(), transformer_state(b).keys(layer).sizes());
      EXPECT_LT(difference(transformer_state(a).keys(layer), transformer_state(b).keys(layer)), 1e-12);
      EXPECT_LT(difference(transformer_state(a).values(layer), transformer_state(b).values(layer)), 1e-12);
    }
  }
};

const std::vector<std::vector<int64_t>> kPrefix{{3, 4, 5}, {6}};

TEST_F(DecodeStateLayers, RunLayersInTwoPartsEqualsAStep) {
  const auto whole = fresh();
  const auto parts = fresh();
  const StepInput input = step_input(kPrefix);
  const at::Tensor expected = model_->step(input, *whole).logits;
  DecoderState& state = transformer_state(*parts);
  const StepLayout layout = state.append(input.new_tokens, 3);
  at::Tensor hidden = model_->run_layers({0, 2}, model_->embed(input.tokens, layout), layout, state);
  EXPECT_EQ(state.layer_length(1, 0), 3);
  EXPECT_EQ(state.layer_length(2, 0), 0);
  EXPECT_EQ(state.length(0), 0);
  hidden = model_->run_layers({2, 3}, hidden, layout, state);
  EXPECT_LT(difference(model_->exit_head(hidden)[0], expected[0]), 1e-12);
  expect_same_caches(*whole, *parts);
}

TEST_F(DecodeStateLayers, FirstLayerAheadOfTheRestResumesFromStoredHiddenStates) {
  const auto whole = fresh();
  const at::Tensor expected = model_->step(step_input({{3, 4, 5, 6}, {7, 8, 9, 10}}), *whole).logits;
  const auto ahead = fresh();
  DecoderState& state = transformer_state(*ahead);
  std::vector<at::Tensor> stored;
  for (const auto& tokens : {std::vector<int64_t>{3, 7}, {4, 8}, {5, 9}, {6, 10}}) {  // layer 0 drafts alone
    const StepInput one = step_input({{tokens[0]}, {tokens[1]}});
    const StepLayout layout = state.append(one.new_tokens, 1, 0);
    stored.push_back(model_->run_layers({0, 1}, model_->embed(one.tokens, layout), layout, state));
  }
  const StepLayout rest = state.append(std::vector<int64_t>{4, 4}, 4, 1);
  const at::Tensor hidden = model_->run_layers({1, 3}, at::cat(stored, 1), rest, state);
  EXPECT_LT(difference(model_->exit_head(hidden), expected), 1e-12);
  expect_same_caches(*whole, *ahead);
}

TEST_F(DecodeStateLayers, LayersAtDifferentLengthsRefuseAWholeStep) {
  const auto ahead = fresh();
  DecoderState& state = transformer_state(*ahead);
  const StepInput input = step_input(kPrefix);
  const StepLayout layout = state.append(input.new_tokens, 3);
  model_->run_layers({0, 1}, model_->embed(input.tokens, layout), layout, state);
  EXPECT_THROW(model_->step(input, *ahead), std::logic_error);
  state.rollback_layers({0, 1}, std::vector<int64_t>{0, 0});
  const auto whole = fresh();
  EXPECT_LT(difference(model_->step(input, *ahead).logits[0], model_->step(input, *whole).logits[0]), 1e-12);
}

TEST_F(DecodeStateLayers, WriteKvEqualsTheCachesOfRunLayersFromTheSameHiddenStates) {
  const auto run = fresh();
  const auto written = fresh();
  StepInput input = step_input(kPrefix);
  input.hidden_layers = {0, 1, 2};
  const StepOutput output = model_->step(input, *run);
  DecoderState& state = transformer_state(*written);
  const StepLayout layout = state.append(input.new_tokens, 3);
  for (int64_t layer = 0; layer < 3; ++layer) {
    model_->write_kv({layer, layer + 1}, output.hidden[static_cast<size_t>(layer)], layout, state);
  }
  EXPECT_EQ(written->length(0), 3);
  EXPECT_EQ(written->length(1), 1);
  expect_same_caches(*run, *written);
}

TEST_F(DecodeStateLayers, WriteKvOfARangeUsesOneHiddenStateForAllItsLayers) {
  const auto together = fresh();
  const auto apart = fresh();
  const StepInput input = step_input(kPrefix);
  const StepLayout layout = transformer_state(*together).append(input.new_tokens, 3);
  const at::Tensor hidden = model_->embed(input.tokens, layout);
  model_->write_kv({0, 3}, hidden, layout, transformer_state(*together));
  for (int64_t layer = 2; layer >= 0; --layer) {
    model_->write_kv({layer, layer + 1}, hidden, layout, transformer_state(*apart));
  }
  expect_same_caches(*together, *apart);
}

// Branches that overfill the capacity for a moment, too: they are alternatives for one position.
TEST_F(DecodeStateLayers, SiblingsEqualSeparateStates) {
  for (const int64_t capacity : {16, 4}) {
    const auto branched = model_->begin(encoded_, capacity);
    model_->step(step_input(kPrefix), *branched);
    DecoderState& state = transformer_state(*branched);
    const at::Tensor tokens = at::tensor({7, 8, 9, 10, 11, 12}, at::kLong).view({2, 3});
    const StepLayout layout = state.siblings(std::vector<int64_t>{3, 3}, 3);
    const at::Tensor hidden = model_->run_layers({0, 3}, model_->embed(tokens, layout), layout, state);
    EXPECT_EQ(branched->length(0), 3);
    for (int64_t branch = 0; branch < 3; ++branch) {
      const auto alone = fresh();
      model_->step(step_input(kPrefix), *alone);
      const at::Tensor expected = model_->step(step_input({{7 + branch}, {10 + branch}}), *alone).logits;  // [2,1,V]
      EXPECT_LT(difference(model_->exit_head(hidden.narrow(1, branch, 1)), expected), 1e-12) << branch;
    }
  }
}

TEST_F(DecodeStateLayers, SelectedBranchGoesOnAsIfItHadBeenStepped) {
  const auto branched = fresh();
  model_->step(step_input(kPrefix), *branched);
  DecoderState& state = transformer_state(*branched);
  const at::Tensor tokens = at::tensor({7, 8, 9, 10, 11, 12}, at::kLong).view({2, 3});
  const StepLayout layout = state.siblings(std::vector<int64_t>{3, 3}, 3);
  model_->run_layers({0, 3}, model_->embed(tokens, layout), layout, state);
  state.select_branch({0, 3}, layout, std::vector<int64_t>{2, -1});
  EXPECT_EQ(branched->length(0), 4);
  EXPECT_EQ(branched->length(1), 1);
  const auto expected = fresh();
  model_->step(step_input({{3, 4, 5, 9}, {6}}), *expected);
  expect_same_caches(*expected, *branched);
  const StepInput next = step_input({{13, 14}, {15}});
  const at::Tensor after_branch = model_->step(next, *branched).logits;
  const at::Tensor after_steps = model_->step(next, *expected).logits;
  EXPECT_LT(difference(after_branch[0], after_steps[0]), 1e-12);
  EXPECT_LT(difference(after_branch[1][0], after_steps[1][0]), 1e-12);
}

// PPD: lower layers run the candidates for the next token, the upper layers follow with the chosen one only.
TEST_F(DecodeStateLayers, BranchesOfLowerLayersOnlyResumeInTheUpperOnes) {
  const auto branched = fresh();
  model_->step(step_input(kPrefix), *branched);
  DecoderState& state = transformer_state(*branched);
  const StepLayout layout = state.siblings(std::vector<int64_t>{2, 2}, 2);
  const at::Tensor tokens = at::tensor({7, 8, 9, 10}, at::kLong).view({2, 2});
  const at::Tensor hidden = model_->run_layers({0, 2}, model_->embed(tokens, layout), layout, state);
  state.select_branch({0, 2}, layout, std::vector<int64_t>{1, 0});
  const at::Tensor chosen = at::stack({hidden[0][1], hidden[1][0]}).unsqueeze(1);  // [2,1,D]
  const StepLayout upper = state.append(std::vector<int64_t>{1, 1}, 1, 2);
  const at::Tensor logits = model_->exit_head(model_->run_layers({2, 3}, chosen, upper, state));
  const auto expected = fresh();
  model_->step(step_input(kPrefix), *expected);
  EXPECT_LT(difference(logits, model_->step(step_input({{8}, {9}}), *expected).logits), 1e-12);
  expect_same_caches(*expected, *branched);
}

TEST_F(DecodeStateLayers, CachesAfterDraftsRollbacksAndCommitsEqualRecomputedOnes) {
  std::mt19937_64 random(3);
  const auto token = [&] { return static_cast<int64_t>(2 + random() % 21); };
  for (int trial = 0; trial < 8; ++trial) {
    const auto walked = fresh();
    std::vector<std::vector<int64_t>> committed(2);
    while (committed[0].size() < 10 || committed[1].size() < 10) {
      std::vector<std::vector<int64_t>> draft(2);
      std::vector<int64_t> kept;
      for (size_t b = 0; b < 2; ++b) {
        const size_t room = 14 - committed[b].size();
        for (size_t i = random() % std::min<size_t>(room, 5); i > 0; --i) {
          draft[b].push_back(token());
        }
        const size_t accepted = draft[b].empty() ? 0 : random() % (draft[b].size() + 1);
        committed[b].insert(committed[b].end(), draft[b].begin(), draft[b].begin() + static_cast<int64_t>(accepted));
        kept.push_back(static_cast<int64_t>(committed[b].size()));
      }
      model_->step(step_input(draft, Logits::kNone), *walked);
      walked->rollback(kept);
    }
    const auto recomputed = fresh();
    model_->step(step_input(committed, Logits::kNone), *recomputed);
    expect_same_caches(*recomputed, *walked);
  }
}

TEST_F(DecodeStateLayers, StatesAreIndependentOfEachOther) {
  const auto first = fresh();
  const auto second = fresh();
  const at::Tensor expected = model_->step(step_input(kPrefix), *first).logits;
  model_->step(step_input({{9, 9}, {9}}), *first);
  EXPECT_EQ(difference(model_->step(step_input(kPrefix), *second).logits, expected), 0);
}

// One for each new token of a row and each layer that ran on it, whatever becomes of it.
TEST_F(DecodeStateLayers, RunsOfLayersAreCounted) {
  const auto decode = fresh();
  DecoderState& state = transformer_state(*decode);
  EXPECT_EQ(state.layer_runs(), 0);
  model_->step(step_input(kPrefix), *decode);  // 3 and 1 tokens, 3 layers
  EXPECT_EQ(state.layer_runs(), 4 * 3);
  decode->rollback(std::vector<int64_t>{2, 1});
  EXPECT_EQ(state.layer_runs(), 4 * 3);
  const StepInput one = step_input({{8}, {}});
  StepLayout layout = state.append(one.new_tokens, 1);
  const at::Tensor hidden = model_->run_layers({0, 2}, model_->embed(one.tokens, layout), layout, state);
  EXPECT_EQ(state.layer_runs(), 4 * 3 + 2);
  model_->write_kv({2, 3}, hidden, layout, state);
  EXPECT_EQ(state.layer_runs(), 4 * 3 + 2) << "K/V that are only written are no run";
  layout = state.siblings(std::vector<int64_t>{2, 2}, 2);
  model_->run_layers({0, 1}, model_->embed(at::tensor({4, 5, 6, 7}, at::kLong).view({2, 2}), layout), layout, state);
  EXPECT_EQ(state.layer_runs(), 4 * 3 + 2 + 4) << "each branch of each row counts";
  decode->select_rows(std::vector<int64_t>{1});
  EXPECT_EQ(state.layer_runs(), 4 * 3 + 2 + 4) << "rows that end take nothing with them";
}

}  // namespace
}  // namespace draftsmith::model
