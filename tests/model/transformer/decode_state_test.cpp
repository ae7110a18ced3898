// Cached steps against whole sequences; what inner methods need: layer ranges and branch slots; attention of steps of
// more than 32 tokens, as other devices compute it.
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/transformer/decoder_state.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/random_steps.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

TEST(DecodeStateStep, StepsOfAnyLengthWithRollbacksEqualTheWholeSequence) {
  for (const TransformerConfig& config : tiny_models()) {
    const auto model = varied_model(config, 7);
    for (const unsigned seed : {1, 2, 3, 4}) {
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{7}, {5, 1, 9}, {4, 0}}) {
        const TokenBatch source = random_batch(lengths, 23, seed);
        const TokenBatch target = random_batch(std::vector<int64_t>(lengths.size(), 24), 23, seed + 10);
        RandomSteps steps(*model, source, target, full_logits(*model, source, target), seed);
        EXPECT_LT(steps.worst_difference(), 1e-10) << config.family << " " << seed;
      }
    }
  }
}

// Rows that stay keep their places; repeated ones get caches of their own.
TEST(DecodeStateStep, RepeatedRowsAreCopied) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const auto state = model->begin(model->encode(random_batch({4}, 23, 54)), 9, 3);
  model->step(step_input({{3}, {4, 5}, {6, 7, 8}}), *state);
  auto& own = dynamic_cast<DecoderState&>(*state);
  const at::Tensor keys = cached(own, 0).clone();
  state->select_rows(std::vector<int64_t>{1, 1, 2});
  EXPECT_EQ(state->length(1), 2);
  EXPECT_TRUE(at::equal(cached(own, 0), keys.index_select(0, at::tensor({1, 1, 2}, at::kLong))));
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
      EXPECT_EQ(cached(transformer_state(a), layer).sizes(), cached(transformer_state(b), layer).sizes());
      EXPECT_LT(difference(cached(transformer_state(a), layer), cached(transformer_state(b), layer)), 1e-12);
      EXPECT_LT(difference(cached(transformer_state(a), layer, &LayerCache::values),
                           cached(transformer_state(b), layer, &LayerCache::values)),
                1e-12);
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
  EXPECT_EQ(state.cache(1).lengths[0], 3);
  EXPECT_EQ(state.cache(2).lengths[0], 0);
  EXPECT_EQ(state.length(0), 0);
  hidden = model_->run_layers({2, 3}, hidden, layout, state);
  EXPECT_LT(difference(model_->exit_head(hidden)[0], expected[0]), 1e-12);
  expect_same_caches(*whole, *parts);
}

// Branches that overfill the capacity for a moment, too: they are alternatives for one position.
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
      const auto next =
          step_input({slice({tokens, {}}, 0, branch, branch + 1), slice({tokens, {}}, 1, branch, branch + 1)});
      const at::Tensor expected = model_->step(next, *alone).logits;  // [2,1,V]
      EXPECT_LT(difference(model_->exit_head(hidden.narrow(1, branch, 1)), expected), 1e-12) << branch;
    }
  }
}

// Branches see what their position's window leaves of the prefix; few of them in fp32 by the kernel.
TEST(DecodeStateWindows, SiblingsEqualSeparateStates) {
  const StepInput prefix = step_input({{3, 4, 5, 6, 7, 8}});
  for (const auto& [form, type] : {std::pair{5, at::kDouble}, {6, at::kDouble}, {5, at::kFloat}, {6, at::kFloat}}) {
    const auto model = varied_model(tiny_forms()[static_cast<size_t>(form)], 7, type);
    for (const int64_t branches : {3, 40}) {
      const auto branched = model->begin(1, 50);
      model->step(prefix, *branched);
      DecoderState& state = transformer_state(*branched);
      const StepLayout layout = state.siblings(std::vector{branches}, branches);
      const at::Tensor tokens = at::arange(branches, at::kLong).remainder(21).add(2).unsqueeze(0);
      const at::Tensor hidden = model->run_layers({0, 3}, model->embed(tokens, layout), layout, state);
      for (int64_t branch = 0; branch < 3; ++branch) {
        const auto alone = model->begin(1, 50);
        model->step(prefix, *alone);
        const at::Tensor logits = model->step(step_input({{2 + branch}}), *alone).logits;
        EXPECT_LT(difference(model->exit_head(hidden.narrow(1, branch, 1)), logits), type == at::kFloat ? 1e-5 : 1e-12)
            << form << branches;
      }
    }
  }
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
