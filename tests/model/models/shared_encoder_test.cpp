// The drafter that shares its target's encoder: a pass over whole sequences, the same token by token over caches, and
// an ordinary decoder over the projected states.
#include "model/kinds/shared_encoder.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/cpu/packed_weights.h"
#include "model/kinds/shared_encoder_pair.h"
#include "tests/model/models/tandem_passes.h"

namespace draftsmith::model {
namespace {

const std::vector<int64_t> kTargetLengths{9, 4, 1, 12};

class SharedEncoder : public testing::TestWithParam<TransformerConfig> {
 protected:
  std::unique_ptr<TransformerModel> target_ = varied_model(GetParam(), 11);
  std::unique_ptr<TransformerModel> small_ = varied_model(smaller(GetParam()), 12);
  std::unique_ptr<TransformerModel> drafter_ = make_shared_encoder_drafter(*small_, *target_);
  PairBatch batch_ = pair_batch(GetParam(), kTargetLengths, 5);

  EncoderStates encoded() { return target_->encode(batch_.source); }

  // [B,T,V]
  at::Tensor pass_logits(TransformerModel& drafter) {
    const at::NoGradGuard no_grad;
    ForwardInput input = forward_input(batch_);
    input.shared_encoder = encoded().hidden;
    return drafter.head(drafter.forward(input).hidden);
  }
};

// Steps of one token a row over the cross-attention of `states`. [B,T,V]
at::Tensor stepwise_logits(LanguageModel& model, const EncoderStates& states, const PairBatch& batch) {
  const at::Tensor logits = at::zeros({4, 12, model.info().vocabulary}, at::kDouble);
  const auto state = model.begin(states, 16);
  for (int64_t t = 0; t < 12; ++t) {
    std::vector<std::vector<int64_t>> rows;
    for (size_t b = 0; b < 4; ++b) {
      rows.push_back(slice(batch.target, b, std::min(t, kTargetLengths[b]), std::min(t + 1, kTargetLengths[b])));
    }
    logits.select(1, t).copy_(model.step(step_input(rows), *state).logits.select(1, 0));
  }
  return logits;
}

TEST_P(SharedEncoder, PassEqualsDecodingTokenByToken) {
  const at::Tensor stepwise = stepwise_logits(*drafter_, drafter_->project_encoder(encoded()), batch_);
  EXPECT_LT(row_difference(pass_logits(*drafter_), stepwise, kTargetLengths), 1e-11);
}

// The reference composition: a projection by hand, and the ordinary model whose decoder the drafter has.
TEST_P(SharedEncoder, IsAnOrdinaryDecoderOverProjectedStates) {
  const EncoderStates states = encoded();
  const at::Tensor projection = drafter_->parameters().at("encoder_projection.weight");
  EXPECT_EQ(projection.sizes(), (std::vector<int64_t>{small_->config().width, target_->config().width}));
  const EncoderStates projected{states.hidden.matmul(projection.t()), states.lengths};
  EXPECT_LT(difference(drafter_->project_encoder(states).hidden, projected.hidden), 1e-12);
  const at::Tensor expected = stepwise_logits(*small_, projected, batch_);
  EXPECT_LT(row_difference(pass_logits(*drafter_), expected, kTargetLengths), 1e-11);
}

TEST_P(SharedEncoder, OfTheTargetItselfThroughAUnitMatrixIsTheTarget) {
  const auto same = make_shared_encoder_drafter(*target_, *target_, {ProjectionStart::kIdentity});
  const at::Tensor expected = target_->head(target_->forward(forward_input(batch_)).hidden);
  EXPECT_LT(row_difference(pass_logits(*same), expected, kTargetLengths), 1e-12);
}

TEST_P(SharedEncoder, HasTheDecoderAndOneProjectionAndNoEncoder) {
  std::map<std::string, at::Tensor> expected;
  for (const auto& [name, value] : small_->parameters()) {
    if (!name.starts_with("encoder.")) expected[name] = value;
  }
  EXPECT_EQ(drafter_->parameters().size(), expected.size() + 1);
  for (const auto& [name, value] : expected) EXPECT_TRUE(drafter_->parameters().at(name).equal(value)) << name;
  EXPECT_FALSE(drafter_->config().has_encoder());
  EXPECT_THROW(drafter_->encode(batch_.source), std::logic_error);
  ForwardInput input = forward_input(batch_);
  EXPECT_THROW(drafter_->forward(input), std::logic_error) << "without the target's encoder states";
  EXPECT_THROW(target_->project_encoder(encoded()), std::logic_error);
}

TEST_P(SharedEncoder, WritesAloneWithItsTargetsEncoder) {
  SharedEncoderPair alone(*drafter_, *target_);
  const EncoderStates states = alone.encode(batch_.source);
  EXPECT_LT(difference(states.hidden, drafter_->project_encoder(encoded()).hidden), 1e-12);
  EXPECT_EQ(states.lengths, batch_.source.lengths);
  const at::Tensor logits = stepwise_logits(alone, states, batch_);
  EXPECT_LT(row_difference(pass_logits(*drafter_), logits, kTargetLengths), 1e-11);
}

// Gradients reach every parameter, the projection included, and nothing of the target.
TEST_P(SharedEncoder, GradientsReachAllItsParameters) {
  drafter_->requires_grad(true);
  target_->requires_grad(true);
  ForwardInput input = forward_input(batch_);
  input.shared_encoder = encoded().hidden;
  drafter_->head(drafter_->forward(input).hidden).logsumexp(-1).sum().backward();
  for (const auto& [name, value] : drafter_->parameters()) {
    ASSERT_TRUE(value.grad().defined()) << name;
    EXPECT_GT(value.grad().abs().max().item<double>(), 0) << name;
  }
  for (const auto& [name, value] : target_->parameters()) EXPECT_FALSE(value.grad().defined()) << name;
}

INSTANTIATE_TEST_SUITE_P(EncoderDecoders, SharedEncoder, testing::Values(tiny_t5(), tiny_mt5()), family_name);

// Loaded for decoding, steps are the packed programs of the CPU, and the projection is packed as other layers are.
TEST(SharedEncoderWeights, OfEveryTypeDecodeCloseToThePlainOnes) {
  TemporaryDirectory root;
  const TransformerConfig config = t5_config({.vocabulary = 40, .width = 64, .head_width = 32, .ff_width = 96});
  const auto target = varied_model(config, 1, at::kFloat);
  TransformerConfig narrow = config;
  narrow.width = 32;
  const auto drafter = make_shared_encoder_drafter(*varied_model(narrow, 2, at::kFloat), *target);
  save_model(root / "target", *target);
  save_shared_encoder(root / "drafter", *drafter, root / "target");
  const PairBatch batch = pair_batch(config, kTargetLengths, 5);
  const EncoderStates states = target->encode(batch.source);
  const at::Tensor expected = stepwise_logits(*drafter, drafter->project_encoder(states), batch);
  const double size = expected.abs().max().item<double>();
  for (const auto& [type, bound] : {std::pair(at::kFloat, 1e-5), {at::kBFloat16, 0.03}, {at::kChar, 0.05}}) {
    const auto loaded = load_shared_encoder(root / "drafter", root / "target", {.dtype = type});
    const EncoderStates projected = loaded->project_encoder(states);
    const at::Tensor plain = drafter->project_encoder(states).hidden;
    EXPECT_LT(difference(projected.hidden, plain) / plain.abs().max().item<double>(), bound) << type;
    const at::Tensor logits = stepwise_logits(*loaded, projected, batch);
    EXPECT_LT(row_difference(logits, expected, kTargetLengths) / size, bound) << type;
  }
}

}  // namespace
}  // namespace draftsmith::model
