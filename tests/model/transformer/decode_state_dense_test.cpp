// The paths that other devices take, run here on the CPU: attention from ATen operations (steps of more than 32 tokens)
// and cache writes by index (values that are strided within a head).
#include <gtest/gtest.h>

#include "model/layers/cache_write.h"
#include "model/layers/step_operators.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

TEST(DecodeStateDense, ManySiblingsEqualSeparateStates) {
  TransformerConfig config = tiny_t5();
  config.vocabulary = 60;
  const auto model = tiny_model(config, at::kDouble);
  const TokenBatch source = random_batch({5, 0}, 60, 1);
  const EncoderStates encoded = model->encode(source);
  const std::vector<std::vector<int64_t>> prefix{{3, 4, 5}, {6}};
  const auto branched = model->begin(encoded, 6);
  model->step(step_input(prefix), *branched);
  DecoderState& state = transformer_state(*branched);
  const int64_t branches = 40;
  const at::Tensor tokens = at::arange(2, 2 + branches, at::kLong).expand({2, branches});
  const StepLayout layout = state.siblings(std::vector{branches, branches}, branches);
  const at::Tensor hidden = model->run_layers({0, 3}, model->embed(tokens, layout), layout, state);
  for (const int64_t branch : {0, 17, 39}) {
    const auto alone = model->begin(encoded, 6);
    model->step(step_input(prefix), *alone);
    const at::Tensor expected = model->step(step_input({{2 + branch}, {2 + branch}}), *alone).logits;
    EXPECT_LT(difference(model->exit_head(hidden.narrow(1, branch, 1)), expected), 1e-12) << branch;
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

TEST(DecodeStateDense, WritesByIndexEqualWritesByCopy) {
  StepLayout layout;
  layout.tokens = 3;
  layout.base = {4, 0};
  layout.new_tokens = {1, 3};
  const at::Tensor values = at::arange(2 * 3 * 6, at::kDouble).view({2, 3, 6});
  const at::Tensor copied = at::zeros({2, 2, 6, 3}, at::kDouble);
  const at::Tensor indexed = at::zeros({2, 2, 6, 3}, at::kDouble);
  write_slots(copied, {0, 1}, values, layout);
  const at::Tensor strided = values.transpose(1, 2).contiguous().transpose(1, 2);  // same values, last stride 3
  ASSERT_NE(strided.stride(-1), 1);
  const at::Tensor other = at::zeros_like(copied);
  write_slots(other, {0, 1}, strided, layout);
  EXPECT_TRUE(copied.equal(other));
  const at::Tensor slots = at::tensor({4, 5, 5, 0, 1, 2}, at::kLong).view({2, 3});
  write_at(indexed, at::zeros_like(indexed), values, values, at::tensor({0, 1}, at::kLong), slots);
  EXPECT_EQ(difference(copied.narrow(2, 0, 5), indexed.narrow(2, 0, 5)), 0);  // slot 5 is the spare one
  EXPECT_EQ(copied[0][1][4][2].item<double>(), values[0][0][5].item<double>());
  EXPECT_EQ(copied[0].narrow(1, 0, 4).abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace draftsmith::model
