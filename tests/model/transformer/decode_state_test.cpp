// Cached steps against whole sequences; what inner methods need: layer ranges, K/V from other hidden states, branch
// slots; the paths that other devices take, run here on the CPU: attention from ATen operations (steps of more than 32
// tokens) and cache writes by index (values that are strided within a head).
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/layers/cache_write.h"
#include "model/layers/step_operators.h"
#include "model/transformer/decoder_state.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

at::Tensor full_logits(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  return model.head(model.forward({source, target, {}}).hidden);
}

// Random steps of 0..8 tokens a row with wrong drafts, rollbacks and ragged rows in between; every logit is compared.
double worst_error_of_random_walk(TransformerModel& model, const std::vector<int64_t>& source_lengths, uint64_t seed) {
  const auto rows = source_lengths.size();
  const int64_t length = 24;
  const TokenBatch source = random_batch(source_lengths, 23, seed);
  const TokenBatch target = random_batch(std::vector<int64_t>(rows, length), 23, seed + 1);
  const at::Tensor expected = full_logits(model, source, target);
  const auto state = model.begin(model.encode(source), length + 8);
  std::mt19937_64 random(seed);
  double worst = 0;
  std::vector<int64_t> done(rows, 0);
  const auto finished = [&] { return std::all_of(done.begin(), done.end(), [&](int64_t n) { return n == length; }); };
  while (!finished()) {
    if (random() % 3 == 0) {  // a draft of wrong tokens, rolled back
      model.step(step_input(std::vector<std::vector<int64_t>>(rows, {1, 1, 1}), Logits::kNone), *state);
      state->rollback(done);
    }
    std::vector<std::vector<int64_t>> tokens;
    for (size_t b = 0; b < rows; ++b) {
      const int64_t count = std::min<int64_t>(length - done[b], static_cast<int64_t>(random() % 9));
      tokens.push_back(slice(target, b, done[b], done[b] + count));
    }
    const StepInput input = step_input(tokens);
    const at::Tensor logits = model.step(input, *state).logits;
    for (size_t b = 0; b < rows; ++b) {
      const auto row = static_cast<int64_t>(b);
      const auto count = static_cast<int64_t>(tokens[b].size());
      worst = std::max(worst, difference(logits[row].narrow(0, 0, count), expected[row].narrow(0, done[b], count)));
      done[b] += count;
      EXPECT_EQ(state->length(row), done[b]);
    }
    if (random() % 4 == 0) {  // forget a few committed tokens of one row and do them again
      done[0] = std::max<int64_t>(0, done[0] - 3);
      state->rollback(done);
    }
  }
  return worst;
}

TEST(DecodeStateStep, StepsOfAnyLengthWithRollbacksEqualTheWholeSequence) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EXPECT_LT(worst_error_of_random_walk(*model, {7}, seed), 1e-10) << seed;
    EXPECT_LT(worst_error_of_random_walk(*model, {5, 1, 9}, seed), 1e-10) << seed;
  }
}

// Rows leave, change places and are doubled; what remains goes on in the same caches, over the first slots' end.
TEST(DecodeStateStep, RowsSelectedAgainAndAgainEqualRowsAlone) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4, 6, 2, 5}, 23, 50);
  const TokenBatch target = random_batch({100, 100, 100, 100}, 23, 51);
  const auto state = model->begin(model->encode(source), 100);
  const std::vector<std::vector<int64_t>> selections{{2, 0, 3}, {2, 0, 1}, {1, 2}, {0, 1, 1}, {2, 0}};
  std::vector<size_t> rows{0, 1, 2, 3};
  std::vector<int64_t> done(4, 0);
  at::Tensor logits;
  for (size_t round = 0; round <= selections.size(); ++round) {
    std::vector<std::vector<int64_t>> tokens;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t count = 13 + static_cast<int64_t>(rows[i]);
      tokens.push_back(slice(target, rows[i], done[i], done[i] + count));
      done[i] += count;
    }
    logits = model->step(step_input(tokens, Logits::kLast), *state).logits;
    if (round < selections.size()) {
      std::vector<size_t> next_rows;
      std::vector<int64_t> next_done;
      for (const int64_t row : selections[round]) {
        next_rows.push_back(rows[static_cast<size_t>(row)]);
        next_done.push_back(done[static_cast<size_t>(row)]);
      }
      state->select_rows(selections[round]);
      rows = next_rows;
      done = next_done;
    }
  }
  ASSERT_EQ(rows.size(), 2U);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(rows[i]);
    const TokenBatch prefix{target.tokens.narrow(0, row, 1).narrow(1, 0, done[i]), {done[i]}};
    const at::Tensor expected = full_logits(*model, single(source, row), prefix)[0][done[i] - 1];
    EXPECT_LT(difference(logits[static_cast<int64_t>(i)][0], expected), 1e-10);
    EXPECT_EQ(state->length(static_cast<int64_t>(i)), done[i]);
  }
}

// Beam search repeats rows while others leave: no cache is made anew, and only the repeated rows are copied.
TEST(DecodeStateStep, RepeatedRowsTakeThePlacesOfRowsThatLeft) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const auto state = model->begin(model->encode(random_batch({4}, 23, 54)), 9, 3);
  model->step(step_input({{3}, {4, 5}, {6, 7, 8}}), *state);
  auto& own = dynamic_cast<DecoderState&>(*state);
  const void* memory = own.cache(0).keys.const_data_ptr();
  const at::Tensor keys = own.keys(0).clone();
  state->select_rows(std::vector<int64_t>{1, 1, 2});
  EXPECT_EQ(own.cache(0).keys.const_data_ptr(), memory);
  EXPECT_EQ(own.cache_rows(), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(state->length(1), 2);
  for (const auto& [row, former] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {2, 2}}) {
    EXPECT_TRUE(at::equal(own.keys(0)[row], keys[former])) << row;
  }
}

TEST(DecodeStateStep, PassingTheCapacityIsALogicErrorThatLeavesTheStateAsItWas) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const auto state = model->begin(model->encode(random_batch({4}, 23, 48)), 3);
  model->step(step_input({{3, 4}}), *state);
  EXPECT_THROW(model->step(step_input({{5, 6}}), *state), std::logic_error);
  EXPECT_EQ(state->length(0), 2);
  model->step(step_input({{5}}), *state);
  EXPECT_EQ(state->length(0), 3);
}

// A table over every position of this capacity would take hours to fill, as caches of it would not fit.
TEST(DecodeStateStep, AHighCapacityCostsNothingUntilItIsUsed) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4}, 23, 52);
  const TokenBatch target = random_batch({90}, 23, 53);  // beyond what caches and tables begin with
  const at::Tensor expected = full_logits(*model, source, target);
  const auto state = model->begin(model->encode(source), int64_t{1} << 40);
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 60}, {60, 62}, {62, 90}}) {
    const at::Tensor logits = model->step(step_input({slice(target, 0, first, last)}), *state).logits;
    EXPECT_LT(difference(logits[0], expected[0].narrow(0, first, last - first)), 1e-10) << first;
  }
}

TEST(DecodeStateStep, FollowsWeightsThatChangedSinceAnEarlierState) {
  const auto changed = tiny_model(tiny_t5(), at::kDouble, 7);
  const auto fresh = tiny_model(tiny_t5(), at::kDouble, 8);
  const TokenBatch source = random_batch({5}, 23, 1);
  const auto logits = [&](TransformerModel& model) {
    const auto state = model.begin(model.encode(source), 12);
    return model.step(step_input({{0, 4, 9, 3, 17, 8}}), *state).logits;
  };
  logits(*changed);
  for (const auto& [name, value] : changed->parameters()) value.copy_(fresh->parameters().at(name));
  EXPECT_EQ(difference(logits(*changed), logits(*fresh)), 0.0);
}

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

// Branches that overfill the capacity for a moment, too: they are alternatives for one position. Many of them take
// attention from ATen operations.
TEST_F(DecodeStateLayers, SiblingsEqualSeparateStates) {
  for (const auto& [capacity, branches] : {std::pair<int64_t, int64_t>{16, 3}, {4, 3}, {6, 40}}) {
    const auto branched = model_->begin(encoded_, capacity);
    model_->step(step_input(kPrefix), *branched);
    DecoderState& state = transformer_state(*branched);
    const at::Tensor tokens = at::arange(2 * branches, at::kLong).remainder(21).add(2).view({2, branches});
    const StepLayout layout = state.siblings(std::vector{branches, branches}, branches);
    const at::Tensor hidden = model_->run_layers({0, 3}, model_->embed(tokens, layout), layout, state);
    EXPECT_EQ(branched->length(0), 3);
    for (int64_t branch = 0; branch<branches; branch += branches> 3 ? 13 : 1) {
      const auto alone = fresh();
      model_->step(step_input(kPrefix), *alone);
      const at::Tensor expected =
          model_
              ->step(
                  step_input({slice({tokens, {}}, 0, branch, branch + 1), slice({tokens, {}}, 1, branch, branch + 1)}),
                  *alone)
              .logits;  // [2,1,V]
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

TEST(DecodeStateDense, SamplesOfOneSourceEqualSeparateRows) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const EncoderStates encoded = model->encode(random_batch({5}, 23, 2));
  const TokenBatch target = random_batch({40, 35}, 23, 3);
  const auto shared = model->begin(encoded, 40, 2);
  const at::Tensor logits = model->step(step_input({slice(target, 0, 0, 40), slice(target, 1, 0, 35)}), *shared).logits;
  const auto alone = model->begin(encoded, 40);
  const at::Tensor expected = model->step(step_input({slice(target, 1, 0, 35)}), *alone).logits;
  EXPECT_LT(difference(logits[1].narrow(0, 0, 35), expected[0]), 1e-12);
}

}  // namespace
}  // namespace draftsmith::model
