// Passes over whole sequences: gradients, ragged rows, dropout, first weights; tables of position bias; which kinds of
// steps are recorded.
#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "model/transformer/decoder_state.h"
#include "model/transformer/parameters.h"
#include "model/transformer/stack.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

// Sum of fixed-weighted logits: a scalar whose gradient touches every parameter.
at::Tensor weighted_loss(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  const at::Tensor logits = full_logits(model, source, target);
  const at::Tensor factors = at::sin(at::arange(logits.numel(), logits.options().requires_grad(false)));
  return (at::log_softmax(logits, -1).view(-1) * factors).sum();
}

void expect_gradients_match(TransformerModel& given) {
  TransformerModel* const model = &given;
  const TransformerConfig& config = given.config();
  const TokenBatch source = random_batch({5, 3}, config.vocabulary, 1);
  const TokenBatch target = random_batch({4, 2}, config.vocabulary, 2);
  model->requires_grad(true);
  weighted_loss(*model, source, target).backward();
  const double h = 1e-6;
  for (const auto& [name, value] : model->parameters()) {
    EXPECT_EQ(value.grad().defined(), !is_constant(name)) << name;
    if (!value.grad().defined()) continue;
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
      const double numeric = (above - below) / (2 * h), analytic = gradient.view(-1)[index].item<double>();
      EXPECT_NEAR(analytic, numeric, 1e-5 * std::max(1.0, std::abs(numeric))) << name << " " << index;
    }
  }
}

TEST(TransformerForward, GradientsEqualFiniteDifferences) {
  expect_gradients_match(*tiny_model(tiny_t5(), at::kDouble));
  for (const TransformerConfig& form : tiny_forms()) {
    SCOPED_TRACE(form.family);
    expect_gradients_match(*varied_model(form, 7));
  }
}

TEST(TransformerForward, RaggedBatchEqualsSingleRows) {
  for (const TransformerConfig& config : tiny_models()) {
    const auto model = varied_model(config, 7);
    const TokenBatch source = random_batch({9, 1, 20}, 23, 3), target = random_batch({2, 17, 6}, 23, 4);
    const at::Tensor batched = full_logits(*model, source, target);
    for (int64_t b = 0; b < 3; ++b) {
      const at::Tensor alone = full_logits(*model, single(source, b), single(target, b));
      EXPECT_LT(difference(batched[b].narrow(0, 0, alone.size(1)), alone[0]), 1e-10) << config.family;
    }
  }
}

TEST(TransformerForward, SourcesBeyondTheEncodersPositionsAreErrors) {
  for (const TransformerConfig& form : tiny_forms()) {
    if (!form.encoder_decoder || form.max_positions == 0) continue;
    const auto model = tiny_model(form, at::kFloat);
    EXPECT_NO_THROW(model->encode(random_batch({form.max_positions}, 23, 1)));
    EXPECT_THAT(error_of([&] { model->encode(random_batch({form.max_positions + 1}, 23, 1)); }),
                testing::AllOf(testing::HasSubstr(form.family), testing::HasSubstr("at most 64 tokens")));
  }
}

TEST(TransformerForward, WantedLayersThroughTheExitHeadEndInTheLogits) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({5}, 23, 10), target = random_batch({4}, 23, 11);
  const ForwardOutput output = model->forward({source, target, {3, 0}});
  ASSERT_EQ(output.layers.size(), 2U);
  EXPECT_LT(difference(model->exit_head(output.layers[0]), model->head(output.hidden)), 1e-14);
  EXPECT_EQ(difference(output.layers[1], at::embedding(model->parameters().at("embedding.weight"), target.tokens)), 0);
}

TEST(TransformerDropout, IsReproducibleBySeedAndStepAndDiffersOtherwise) {
  const auto model = tiny_model(tiny_t5(), at::kDouble);
  const TokenBatch source = random_batch({5, 3}, 23, 12), target = random_batch({4, 4}, 23, 13);
  const auto run = [&](const DropoutContext& dropout) { return model->forward({source, target, {}}, dropout).hidden; };
  const at::Tensor first = run({0.2, 5, 9});
  run({0.2, 5, 10});
  EXPECT_EQ(difference(first, run({0.2, 5, 9})), 0);
  EXPECT_GT(difference(first, run({0.2, 5, 10})), 1e-3);
  EXPECT_GT(difference(first, run({0.2, 6, 9})), 1e-3);
  EXPECT_GT(difference(first, run({})), 1e-3);
}

TEST(TransformerParameters, MissingUnknownAndMisshapenTensorsAreAllNamed) {
  auto parameters = tiny_model(tiny_t5(), at::kFloat)->parameters();
  parameters.erase("encoder.0.self_attention.key.weight");
  parameters["decoder.1.extra.weight"] = at::zeros({3});
  parameters["decoder.final_norm.weight"] = at::zeros({7});
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

PositionBias bias_of(Positions positions, bool bidirectional) {
  TransformerConfig config = tiny_t5();
  config.positions = positions;
  return {config, random_tensor({config.relative_buckets, config.heads}, 1), bidirectional, at::zeros({1})};
}

TEST(PositionBias, ByDistanceHoldsTheFullBias) {
  for (const PositionBias& bias : {bias_of(Positions::kRelativeBias, true), bias_of(Positions::kRelativeBias, false),
                                   bias_of(Positions::kAlibi, false)}) {
    for (const int64_t n : {1, 2, 5, 40}) {
      const at::Tensor full = bias.full(n, n)[0];    // [H,n,n]
      const at::Tensor table = bias.by_distance(n);  // [H,2n-1]
      ASSERT_EQ(table.sizes(), (std::vector<int64_t>{full.size(0), 2 * n - 1}));
      for (int64_t t = 0; t < n; ++t) EXPECT_TRUE(at::equal(table.narrow(1, n - 1 - t, n), full.select(1, t))) << n;
      EXPECT_TRUE(at::equal(table.narrow(1, 0, n), bias.reversed_table(n))) << n;
    }
  }
}

TEST(PositionBias, ReversedTablesMayHoldLaterKeys) {
  const PositionBias bias = bias_of(Positions::kAlibi, false);
  EXPECT_TRUE(at::equal(bias.reversed_table(6, 3), bias.by_distance(6).narrow(1, 0, 9)));
}

TEST(StepGraphs, RecordFromTheSecondStepOfAKindOn) {
  StepGraphs graphs;
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_NE(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 2, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  graphs.clear();
  EXPECT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
}

// Outputs of recorded kinds have memory each.
TEST(StepGraphs, ForgetTheKindThatWasNeededLeastRecently) {
  StepGraphs graphs;
  graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
  StepGraph* kept = graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
  for (int64_t rows = 2; rows < 200; ++rows) {
    graphs.find({.rows = rows, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}});
    ASSERT_EQ(graphs.find({.rows = 1, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), kept);
  }
  EXPECT_NE(graphs.find({.rows = 199, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
  EXPECT_EQ(graphs.find({.rows = 2, .tokens = 1, .logits = Logits::kAll, .hidden_layers = {}}), nullptr);
}

// As in Transformers: the next norm would make NaN of infinities.
TEST(Forward, EncodersInHalfPrecisionStayFinite) {
  TransformerConfig config = tiny_forms()[1];
  ASSERT_EQ(config.family, "mbart_like");
  const auto model = tiny_model(config, at::kHalf);
  for (const char* name : {"encoder.0.self_attention.output.bias", "encoder.0.feed_forward.down.bias"}) {
    model->parameters().at(name).detach()[0].fill_(60000);
  }
  EXPECT_TRUE(model->encode(random_batch({7, 4}, config.vocabulary, 1)).hidden.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace draftsmith::model
