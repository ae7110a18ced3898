// The Tandem secondary: a pass over whole sequences with a block mask, the same token by token over caches, and the
// identity that holds both: a primary that reads itself is itself.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

const std::vector<int64_t> kLengths{9, 4, 1, 12};

class TandemFamilies : public testing::TestWithParam<TransformerConfig> {
 protected:
  std::unique_ptr<TransformerModel> primary_ = varied_model(GetParam(), 11);
  PairBatch batch_ = pair_batch(GetParam(), kLengths, 5);

  at::Tensor primary_logits() { return primary_->head(primary_->forward(forward_input(batch_)).hidden); }

  std::unique_ptr<DecodeState> begin(TransformerModel& secondary, const PrimaryStates& states) const {
    const int64_t capacity = 16;
    if (!GetParam().encoder_decoder) return secondary.begin(static_cast<int64_t>(kLengths.size()), capacity);
    return secondary.begin(secondary.project_encoder({states.encoder, batch_.source.lengths}), capacity);
  }

  // Tokens begin..end of each row, as far as it has them.
  std::vector<std::vector<int64_t>> tokens_between(int64_t begin, int64_t end) const {
    std::vector<std::vector<int64_t>> rows;
    for (size_t b = 0; b < kLengths.size(); ++b) {
      rows.push_back(slice(batch_.target, b, std::min(begin, kLengths[b]), std::min(end, kLengths[b])));
    }
    return rows;
  }

  // The pass as decoding does it: in each block one token after the other, then the primary's representations of the
  // block's tokens in place of the secondary's own. [B,T,V]
  at::Tensor logits_token_by_token(TransformerModel& secondary, const PrimaryStates& states, int64_t block) const {
    const at::Tensor logits =
        at::zeros({static_cast<int64_t>(kLengths.size()), 12, GetParam().vocabulary}, at::kDouble);
    const auto state = begin(secondary, states);
    for (int64_t first = 0; first < 12; first += block) {
      const int64_t end = std::min<int64_t>(first + block, 12);
      for (int64_t t = first; t < end; ++t) {
        const StepInput input = step_input(tokens_between(t, t + 1));
        logits.select(1, t).copy_(secondary.step(input, *state).logits.select(1, 0));
      }
      replace_block(secondary, states, {first, end}, *state);
    }
    return logits;
  }

  void replace_block(TransformerModel& secondary, const PrimaryStates& states, std::pair<int64_t, int64_t> block,
                     DecodeState& state) const {
    const std::vector<int64_t> before(kLengths.size(), block.first);
    state.rollback(before);
    std::vector<int64_t> counts;
    for (const auto& row : tokens_between(block.first, block.second)) counts.push_back(std::ssize(row));
    std::vector<at::Tensor> representations;
    for (const at::Tensor& layer : states.layers) {
      representations.push_back(layer.narrow(1, block.first, block.second - block.first));
    }
    DecoderState& own = transformer_state(state);
    secondary.write_primary(representations, own.append(counts, block.second - block.first), own);
  }
};

TEST_P(TandemFamilies, PrimaryThatReadsItselfIsItselfForAnyBlock) {
  const auto secondary = secondary_like(*primary_);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  for (const int64_t block : {1, 2, 3, 7, 100}) {
    EXPECT_LT(row_difference(tandem_logits(*secondary, states, batch_, block), primary_logits(), kLengths), 1e-11)
        << block;
  }
}

TEST_P(TandemFamilies, PrimaryThatReadsItselfDecodesAsItself) {
  const auto secondary = secondary_like(*primary_);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  for (const int64_t block : {1, 2, 5}) {
    EXPECT_LT(row_difference(logits_token_by_token(*secondary, states, block), primary_logits(), kLengths), 1e-11)
        << block;
  }
}

TEST_P(TandemFamilies, MaskedPassEqualsTokenByTokenDecoding) {
  const auto secondary = small_secondary(*primary_, 21);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  for (const int64_t block : {1, 2, 3, 5, 20}) {
    const at::Tensor pass = tandem_logits(*secondary, states, batch_, block);
    EXPECT_LT(row_difference(pass, logits_token_by_token(*secondary, states, block), kLengths), 1e-11) << block;
  }
}

TEST_P(TandemFamilies, BlockBeyondTheTextGivesThePlainSecondary) {
  const auto secondary = small_secondary(*primary_, 21);
  PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  const at::Tensor whole = tandem_logits(*secondary, states, batch_, 12);
  const at::Tensor small_blocks = tandem_logits(*secondary, states, batch_, 2);
  EXPECT_GT(row_difference(whole, small_blocks, kLengths), 1e-3);  // the primary is read otherwise
  for (at::Tensor& layer : states.layers) layer.mul_(-3.0);
  EXPECT_EQ(row_difference(tandem_logits(*secondary, states, batch_, 12), whole, kLengths), 0);
  if (GetParam().encoder_decoder) return;
  std::map<std::string, at::Tensor> plain = secondary->parameters();
  std::erase_if(plain, [](const auto& entry) { return entry.first.ends_with("primary_projection.weight"); });
  TransformerModel ordinary(smaller(GetParam()), plain);
  const at::Tensor expected = ordinary.head(ordinary.forward(forward_input(batch_)).hidden);
  EXPECT_LT(row_difference(whole, expected, kLengths), 1e-12);
}

TEST_P(TandemFamilies, TokensOfTheSameBlockAreReadFromTheSecondaryItself) {
  const auto secondary = small_secondary(*primary_, 21);
  PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  const at::Tensor before = tandem_logits(*secondary, states, batch_, 3);
  for (at::Tensor& layer : states.layers) layer = layer.clone();
  for (at::Tensor& layer : states.layers) layer[3].narrow(0, 6, 3).add_(1.0);  // the third block of the longest row
  const at::Tensor after = tandem_logits(*secondary, states, batch_, 3);
  EXPECT_EQ(difference(after[3].narrow(0, 0, 9), before[3].narrow(0, 0, 9)), 0);
  for (int64_t t = 9; t < 12; ++t) EXPECT_GT(difference(after[3][t], before[3][t]), 1e-4) << t;
}

TEST_P(TandemFamilies, PackedRowsEqualSingleOnes) {
  if (GetParam().encoder_decoder) GTEST_SKIP() << "only decoder-only models are packed";
  const auto secondary = small_secondary(*primary_, 21);
  const at::Tensor alone =
      tandem_logits(*secondary, primary_states(*primary_, *secondary, batch_), batch_, 2);  // [4,12,V]
  PairBatch packed;
  packed.target.tokens = at::zeros({1, 27}, at::kLong);
  int64_t place = 0;
  for (size_t b = 0; b < kLengths.size(); ++b) {
    packed.target.tokens.narrow(1, place, kLengths[b])
        .copy_(batch_.target.tokens[static_cast<int64_t>(b)].narrow(0, 0, kLengths[b]).unsqueeze(0));
    place += kLengths[b];
  }
  packed.target.lengths = {place};
  packed.target.segments = {kLengths};
  const at::Tensor together =
      tandem_logits(*secondary, primary_states(*primary_, *secondary, packed), packed, 2);  // [1,27,V]
  place = 0;
  for (size_t b = 0; b < kLengths.size(); ++b) {
    const at::Tensor own = alone[static_cast<int64_t>(b)].narrow(0, 0, kLengths[b]);
    EXPECT_LT(difference(together[0].narrow(0, place, kLengths[b]), own), 1e-11) << b;
    place += kLengths[b];
  }
}

TEST_P(TandemFamilies, GradientsOfProjectionsAndOfThePrimaryEqualFiniteDifferences) {
  const auto secondary = small_secondary(*primary_, 21);
  PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  const auto loss = [&] {
    const at::Tensor logits = tandem_logits(*secondary, states, batch_, 2);
    const at::Tensor factors = at::sin(at::arange(logits.numel(), logits.options().requires_grad(false)));
    return (at::log_softmax(logits, -1).view(-1) * factors).sum();
  };
  std::map<std::string, at::Tensor> variables = {{"primary layer", states.layers.back()}};
  if (states.encoder.defined()) variables["encoder"] = states.encoder;
  for (const auto& [name, value] : secondary->parameters()) {
    if (name.find("projection.weight") != std::string::npos) variables[name] = value;
  }
  for (auto& [name, value] : variables) value.requires_grad_(true);
  loss().backward();
  for (auto& [name, value] : variables) {
    const at::Tensor gradient = value.grad().clone();
    const at::NoGradGuard no_grad;
    for (const int64_t index : {gradient.abs().argmax().item<int64_t>(), value.numel() / 3}) {
      const at::Tensor entry = value.view(-1)[index];
      const double before = entry.item<double>();
      const auto at_distance = [&](double h) {
        entry.fill_(before + h);
        const double result = loss().item<double>();
        entry.fill_(before);
        return result;
      };
      const double numeric = (at_distance(1e-6) - at_distance(-1e-6)) / 2e-6;
      const double analytic = gradient.view(-1)[index].item<double>();
      EXPECT_NEAR(analytic, numeric, 2e-5 * std::max(1.0, std::abs(numeric))) << name << " " << index;
    }
  }
}

// With both models trained, the secondary's loss reaches the primary's weights through its representations.
TEST_P(TandemFamilies, GradientsFlowIntoThePrimary) {
  const auto secondary = small_secondary(*primary_, 21);
  primary_->requires_grad(true);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  tandem_logits(*secondary, states, batch_, 2).square().sum().backward();
  const at::Tensor& first = primary_->parameters().at("decoder.0.self_attention.value.weight");
  ASSERT_TRUE(first.grad().defined());
  EXPECT_GT(largest(first.grad()), 0);
  if (GetParam().encoder_decoder) {
    EXPECT_GT(largest(primary_->parameters().at("encoder.0.feed_forward.up.weight").grad()), 0);
  }
}

TEST_P(TandemFamilies, PackedWeightsDecodeAlike) {
  const auto plain = small_secondary(*primary_, 21, at::kFloat);
  const auto packed = small_secondary(*primary_, 21, at::kFloat);
  packed->pack();
  PrimaryStates states = primary_states(*primary_, *plain, batch_);
  for (at::Tensor& layer : states.layers) layer = layer.to(at::kFloat);
  if (states.encoder.defined()) states.encoder = states.encoder.to(at::kFloat);
  const at::Tensor a = logits_token_by_token(*plain, states, 3);
  EXPECT_LT(row_difference(a, logits_token_by_token(*packed, states, 3), kLengths), 2e-4);
  EXPECT_LT(row_difference(a, tandem_logits(*packed, states, batch_, 3), kLengths), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, TandemFamilies, testing::ValuesIn(tiny_families()), family_name);

TEST(Tandem, OtherModelsRefuseAPrimarysRepresentations) {
  const auto ordinary = tiny_model(tiny_llama(), at::kDouble);
  const auto state = ordinary->begin(1, 4);
  DecoderState& own = transformer_state(*state);
  const std::vector<at::Tensor> layers(2, at::zeros({1, 1, 12}, at::kDouble));
  EXPECT_THROW(ordinary->write_primary(layers, own.append(std::vector<int64_t>{1}, 1), own), std::logic_error);
  EXPECT_THROW(ordinary->project_encoder({layers.front(), {1}}), std::logic_error);
}

TEST(Tandem, RepresentationsOfOtherTokensAreRefused) {
  const auto primary = varied_model(tiny_llama(3), 1);
  const auto secondary = small_secondary(*primary, 2);
  const PairBatch batch = pair_batch(primary->config(), {4, 3}, 3);
  PrimaryStates states = primary_states(*primary, *secondary, batch);
  states.layers.back() = states.layers.back().narrow(1, 0, 3);
  EXPECT_THROW(tandem_logits(*secondary, states, batch, 2), std::logic_error);
  states.layers.pop_back();
  EXPECT_THROW(tandem_logits(*secondary, states, batch, 2), std::logic_error);
}

}  // namespace
}  // namespace draftsmith::model
