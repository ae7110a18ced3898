#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/transformer/parameters.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

at::Tensor logits_of(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  return model.head(model.forward({source, target, {}}).hidden);
}

TransformerConfig gated_config() {
  TransformerConfig config = tiny_t5();
  config.gated = true;
  config.activation = Activation::kGeluTanh;
  config.tied_head = false;
  config.output_scale = 1.0;
  return config;
}

// Sum of fixed-weighted logits: a scalar whose gradient touches every parameter.
at::Tensor weighted_loss(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  const at::Tensor logits = logits_of(model, source, target);
  const at::Tensor factors = at::sin(at::arange(logits.numel(), logits.options().requires_grad(false)));
  return (at::log_softmax(logits, -1).view(-1) * factors).sum();
}

void expect_gradients_match(const TransformerConfig& config) {
  const auto model = tiny_model(config, at::kDouble);
  const TokenBatch source = random_batch({5, 3}, config.vocabulary, 1);
  const TokenBatch target = random_batch({4, 2}, config.vocabulary, 2);
  model->requires_grad(true);
  weighted_loss(*model, source, target).backward();
  const double h = 1e-6;
  for (const auto& [name, value] : model->parameters()) {
    const at::Tensor gradient = value.grad().clone();
    const at::NoGradGuard no_grad;
    // The strongest and a fixed other entry of each parameter.
    for (const int64_t index : {gradient.abs().argmax().item<int64_t>(), value.numel() / 3}) {
      const at::Tensor entry = value.view(-1)[index];
      const double before = entry.item<double>();
      entry.fill_(before + h);
      const double above = weighted_loss(*model, source, target).item<double>();
      entry.fill_(before - h);
      const double below = weighted_loss(*model, source, target).item<double>();
      entry.fill_(before);
      const double numeric = (above - below) / (2 * h);
      const double analytic = gradient.view(-1)[index].item<double>();
      EXPECT_NEAR(analytic, numeric, 1e-5 * std::max(1.0, std::abs(numeric))) << name << " " << index;
    }
  }
}

TEST(TransformerForward, GradientsEqualFiniteDifferences) {
  expect_gradients_match(tiny_t5());
}

TEST(TransformerForward, GradientsOfGatedUntiedModelEqualFiniteDifferences) {
  expect_gradients_match(gated_config());
}

TEST(TransformerForward, GradientsOfLayerNormModelEqualFiniteDifferences) {
  TransformerConfig config = tiny_t5();
  config.norm = Norm::kLayer;
  config.activation = Activation::kSilu;
  expect_gradients_match(config);
}

TEST(TransformerForward, RaggedBatchEqualsSingleRows) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({9, 1, 20}, 23, 3);
  const TokenBatch target = random_batch({2, 17, 6}, 23, 4);
  const at::Tensor batched = logits_of(*model, source, target);
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor alone = logits_of(*model, single(source, b), single(target, b));
    EXPECT_LT(difference(batched[b].narrow(0, 0, alone.size(1)), alone[0]), 1e-12);
  }
}

TEST(TransformerForward, FloatIsNearDouble) {
  for (const TransformerConfig& config : {tiny_t5(), gated_config()}) {
    const auto wide = tiny_model(config, at::kDouble);
    const auto narrow = tiny_model(config, at::kFloat);
    const TokenBatch source = random_batch({7, 4}, 23, 5);
    const TokenBatch target = random_batch({3, 8}, 23, 6);
    EXPECT_LT(difference(logits_of(*wide, source, target), logits_of(*narrow, source, target)), 1e-4);
  }
}

TEST(TransformerForward, HalfTypesStayNearFloat) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto reference = tiny_model(gated_config(), at::kFloat);
    const auto half = tiny_model(gated_config(), type);
    const TokenBatch source = random_batch({7, 4}, 23, 5);
    const TokenBatch target = random_batch({3, 8}, 23, 6);
    const at::Tensor expected = logits_of(*reference, source, target).narrow(1, 0, 3);
    const at::Tensor found = logits_of(*half, source, target).narrow(1, 0, 3);
    EXPECT_EQ(found.scalar_type(), type);
    EXPECT_LT(difference(found, expected), 0.15 * largest(expected));
  }
}

TEST(TransformerForward, DownProjectionStaysFp32InHalf) {
  const auto model = tiny_model(tiny_t5(), at::kHalf);
  EXPECT_EQ(model->parameters().at("decoder.0.feed_forward.down.weight").scalar_type(), at::kFloat);
  EXPECT_EQ(model->parameters().at("decoder.0.feed_forward.up.weight").scalar_type(), at::kHalf);
}

TEST(TransformerForward, EmptySourceGivesFiniteLogitsEqualToItsRowAlone) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({4, 0}, 23, 8);
  const TokenBatch target = random_batch({3, 3}, 23, 9);
  const at::Tensor batched = logits_of(*model, source, target);
  const at::Tensor alone = logits_of(*model, single(source, 1), single(target, 1));
  EXPECT_TRUE(at::isfinite(batched).all().item<bool>());
  EXPECT_LT(difference(batched[1], alone[0]), 1e-12);
}

TEST(TransformerForward, WantedLayersThroughTheExitHeadEndInTheLogits) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({5}, 23, 10);
  const TokenBatch target = random_batch({4}, 23, 11);
  const ForwardOutput output = model->forward({source, target, {3, 0}});
  ASSERT_EQ(output.layers.size(), 2U);
  EXPECT_LT(difference(model->exit_head(output.layers[0]), model->head(output.hidden)), 1e-14);
  EXPECT_EQ(difference(output.layers[1], at::embedding(model->parameters().at("embedding.weight"), target.tokens)), 0);
}

TEST(TransformerDropout, IsReproducibleBySeedAndStepAndDiffersOtherwise) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({5, 3}, 23, 12);
  const TokenBatch target = random_batch({4, 4}, 23, 13);
  const auto run = [&](const DropoutContext& dropout) { return model->forward({source, target, {}}, dropout).hidden; };
  const at::Tensor first = run({0.2, 5, 9});
  run({0.2, 5, 10});
  EXPECT_EQ(difference(first, run({0.2, 5, 9})), 0);
  EXPECT_GT(difference(first, run({0.2, 5, 10})), 1e-3);
  EXPECT_GT(difference(first, run({0.2, 6, 9})), 1e-3);
  EXPECT_GT(difference(first, run({})), 1e-3);
}

TEST(TransformerDropout, KeepsTheMeanAndDropsTheGivenShare) {
  Dropout dropout({0.3, 1, 2});
  const at::Tensor kept = dropout(at::ones({200, 500}));
  const double zeros = kept.eq(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(zeros, 0.3, 0.0075);                        // five standard deviations of 100,000 draws
  EXPECT_NEAR(kept.max().item<double>(), 1 / 0.7, 1e-4);  // the probability is a multiple of 2^-16
  const at::Tensor other_site = dropout(at::ones({200, 500}));
  EXPECT_NEAR(kept.eq(other_site).to(at::kDouble).mean().item<double>(), 0.58, 0.01);
}

TEST(TransformerDropout, GradientFollowsTheMask) {
  Dropout dropout({0.5, 3, 4});
  const at::Tensor x = at::ones({40, 33}, at::kDouble).requires_grad_(true);
  const at::Tensor y = dropout(x);
  y.sum().backward();
  EXPECT_EQ(difference(x.grad(), y.detach()), 0);
}

TEST(TransformerParameters, MissingUnknownAndMisshapenTensorsAreAllNamed) {
  auto parameters = tiny_model(tiny_t5(), at::kFloat)->parameters();
  parameters.erase("encoder.0.self_attention.key.weight");
  parameters["decoder.1.extra.weight"] = at::zeros({3});
  parameters["decoder.final_norm.weight"] = at::zeros({7});
  using testing::HasSubstr;
  EXPECT_THAT(error_of([&] { TransformerModel(tiny_t5(), parameters); }),
              testing::AllOf(HasSubstr("encoder.0.self_attention.key.weight"), HasSubstr("decoder.1.extra.weight"),
                             HasSubstr("[20]")));
}

TEST(TransformerParameters, InitialDeviationsAreT5s) {
  TransformerConfig config = tiny_t5();
  config.width = 256;
  config.heads = 4;
  config.head_width = 64;
  config.ff_width = 512;
  config.vocabulary = 400;
  const TransformerModel model(config, 3);
  const auto deviation = [&](const char* name) { return model.parameters().at(name).std().item<double>(); };
  EXPECT_NEAR(deviation("embedding.weight"), 1.0, 0.02);
  EXPECT_NEAR(deviation("decoder.0.self_attention.query.weight"), 1.0 / 128, 0.0003);
  EXPECT_NEAR(deviation("decoder.0.self_attention.key.weight"), 1.0 / 16, 0.002);
  EXPECT_NEAR(deviation("decoder.0.feed_forward.down.weight"), 1 / std::sqrt(512.0), 0.002);
}

TEST(TransformerParameters, SameSeedSameWeights) {
  const TransformerModel first(tiny_t5(), 3);
  const TransformerModel second(tiny_t5(), 3);
  const TransformerModel third(tiny_t5(), 4);
  EXPECT_EQ(difference(first.parameters().at("embedding.weight"), second.parameters().at("embedding.weight")), 0);
  EXPECT_GT(difference(first.parameters().at("embedding.weight"), third.parameters().at("embedding.weight")), 0.1);
}

}  // namespace
}  // namespace draftsmith::model
