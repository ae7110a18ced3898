// Cached steps against whole sequences.
#include <stdexcept>

#include <gtest/gtest.h>

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

TEST(DecodeStateStep, FloatStepsEqualTheWholeSequence) {
  const auto model = tiny_model(tiny_t5(), at::kFloat);
  EXPECT_LT(worst_error_of_random_walk(*model, {5, 1, 9}, 20), 1e-4);
  model->pack();
  EXPECT_LT(worst_error_of_random_walk(*model, {5, 1, 9}, 20), 1e-4);
}

TEST(DecodeStateStep, HalfTypesStepNearTheWholeSequence) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto model = tiny_model(tiny_t5(), type);
    EXPECT_LT(worst_error_of_random_walk(*model, {5, 1, 9}, 21), 0.6);
  }
}

TEST(DecodeStateStep, StepsLongerThanTheKernelsEqualTheWholeSequence) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({6, 2}, 23, 30);
  const TokenBatch target = random_batch({60, 45}, 23, 31);
  const at::Tensor expected = full_logits(*model, source, target);
  const auto state = model->begin(model->encode(source), 64);
  model->step(step_input({slice(target, 0, 0, 5), slice(target, 1, 0, 3)}, Logits::kNone), *state);
  const at::Tensor logits = model->step(step_input({slice(target, 0, 5, 60), slice(target, 1, 3, 45)}), *state).logits;
  EXPECT_LT(difference(logits[0], expected[0].narrow(0, 5, 55)), 1e-10);
  EXPECT_LT(difference(logits[1].narrow(0, 0, 42), expected[1].narrow(0, 3, 42)), 1e-10);
}

TEST(DecodeStateStep, EmptySourceEqualsTheWholeSequence) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  EXPECT_LT(worst_error_of_random_walk(*model, {0}, 22), 1e-10);
  EXPECT_LT(worst_error_of_random_walk(*model, {4, 0}, 23), 1e-10);
}

TEST(DecodeStateStep, LogitsComeOnlyWhereAsked) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const EncoderStates source = model->encode(random_batch({4, 6}, 23, 40));
  const std::vector<std::vector<int64_t>> tokens{{3, 4, 5}, {6}};
  const auto run = [&](Logits logits) {
    return model->step(step_input(tokens, logits), *model->begin(source, 9)).logits;
  };
  const at::Tensor all = run(Logits::kAll);
  const at::Tensor last = run(Logits::kLast);
  EXPECT_FALSE(run(Logits::kNone).defined());
  EXPECT_EQ(all.sizes(), (std::vector<int64_t>{2, 3, 23}));
  ASSERT_EQ(last.sizes(), (std::vector<int64_t>{2, 1, 23}));
  EXPECT_LT(difference(last[0][0], all[0][2]), 1e-13);
  EXPECT_LT(difference(last[1][0], all[1][0]), 1e-13);
}

TEST(DecodeStateStep, HiddenStatesOfWantedLayersComeInTheAskedOrder) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4}, 23, 41);
  const TokenBatch target = random_batch({5}, 23, 42);
  StepInput input = step_input({slice(target, 0, 0, 5)}, Logits::kNone);
  input.hidden_layers = {2, 0, 3};
  const StepOutput stepped = model->step(input, *model->begin(model->encode(source), 9));
  const ForwardOutput whole = model->forward({source, target, {2, 0, 3}});
  ASSERT_EQ(stepped.hidden.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LT(difference(stepped.hidden[i], whole.layers[i]), 1e-12);
  }
}

TEST(DecodeStateStep, PackedEqualsUnpacked) {
  for (const bool gated : {false, true}) {
    TransformerConfig config = tiny_t5();
    config.gated = gated;
    config.activation = gated ? Activation::kGeluTanh : Activation::kRelu;
    const auto model = tiny_model(config, at::kFloat);
    const TokenBatch source = random_batch({4, 6}, 23, 43);
    const StepInput input = step_input({{3, 4, 5}, {6}});
    const at::Tensor plain = model->step(input, *model->begin(model->encode(source), 9)).logits;
    model->pack();
    const at::Tensor packed = model->step(input, *model->begin(model->encode(source), 9)).logits;
    model->unpack();
    const at::Tensor again = model->step(input, *model->begin(model->encode(source), 9)).logits;
    EXPECT_LT(difference(plain[0], packed[0]), 1e-5);
    EXPECT_LT(difference(plain[1][0], packed[1][0]), 1e-5);
    EXPECT_EQ(difference(plain, again), 0);
  }
}

TEST(DecodeStateStep, TrainingAPackedModelUsesItsParameters) {
  const auto model = tiny_model(tiny_t5(), at::kFloat);
  model->pack();
  model->requires_grad(true);
  const TokenBatch source = random_batch({4}, 23, 44);
  full_logits(*model, source, random_batch({3}, 23, 45)).sum().backward();
  EXPECT_TRUE(model->parameters().at("encoder.0.feed_forward.up.weight").grad().defined());
}

TEST(DecodeStateStep, SamplesShareOneSource) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4, 6}, 23, 46);
  const auto shared = model->begin(model->encode(source), 9, 3);
  EXPECT_EQ(shared->rows(), 6);
  const std::vector<std::vector<int64_t>> tokens{{3}, {4, 5}, {6, 7, 8}, {9, 10}, {11}, {12}};
  const at::Tensor logits = model->step(step_input(tokens), *shared).logits;
  for (size_t row = 0; row < 6; ++row) {
    const auto alone = model->begin(model->encode(single(source, static_cast<int64_t>(row) / 3)), 9);
    const at::Tensor expected = model->step(step_input({tokens[row]}), *alone).logits[0];
    EXPECT_LT(difference(logits[static_cast<int64_t>(row)].narrow(0, 0, expected.size(0)), expected), 1e-12) << row;
  }
}

TEST(DecodeStateStep, SelectedRowsGoOnAsBefore) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4, 6, 2}, 23, 47);
  const auto state = model->begin(model->encode(source), 9);
  model->step(step_input({{3}, {4, 5}, {6, 7, 8}}), *state);
  state->select_rows(std::vector<int64_t>{2, 1});
  EXPECT_EQ(state->rows(), 2);
  EXPECT_EQ(state->length(0), 3);
  const at::Tensor logits = model->step(step_input({{9}, {10}}), *state).logits;
  const auto alone = model->begin(model->encode(single(source, 2)), 9);
  EXPECT_LT(difference(logits[0], model->step(step_input({{6, 7, 8, 9}}), *alone).logits[0].narrow(0, 3, 1)), 1e-12);
}

// Rows leave, change places and are doubled; what remains goes on in the same caches, over the first slots' end.
TEST(DecodeStateStep, RowsSelectedAgainAndAgainEqualRowsAlone) {
  for (const at::ScalarType type : {at::kDouble, at::kHalf}) {
    const auto model = tiny_model(tiny_t5(), type);
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
      EXPECT_LT(difference(logits[static_cast<int64_t>(i)][0], expected), type == at::kDouble ? 1e-10 : 0.6);
      EXPECT_EQ(state->length(static_cast<int64_t>(i)), done[i]);
    }
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

TEST(DecodeStateStep, DecoderOnlyStepsEqualTheWholeSequence) {
  TransformerConfig config = tiny_t5();
  config.encoder_decoder = false;
  const auto model = tiny_model(config, at::kDouble);
  const TokenBatch target = random_batch({12, 12}, 23, 49);
  const at::Tensor expected = full_logits(*model, {}, target);
  const auto state = model->begin(2, 12);
  const at::Tensor first = model->step(step_input({slice(target, 0, 0, 7), slice(target, 1, 0, 2)}), *state).logits;
  const at::Tensor rest = model->step(step_input({slice(target, 0, 7, 12), slice(target, 1, 2, 12)}), *state).logits;
  EXPECT_LT(difference(first[0], expected[0].narrow(0, 0, 7)), 1e-12);
  EXPECT_LT(difference(rest[1], expected[1].narrow(0, 2, 10)), 1e-12);
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

}  // namespace
}  // namespace draftsmith::model
