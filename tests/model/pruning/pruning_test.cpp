#include "model/pruning/pruning.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/files/checkpoint_files.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor logits(TransformerModel& model, const at::Tensor& tokens) {
  const std::vector<int64_t> lengths(static_cast<size_t>(tokens.size(0)), tokens.size(1));
  const ForwardOutput output = model.forward({.source = {}, .target = {tokens, lengths}, .hidden_layers = {}});
  return model.head(output.hidden);
}

TEST(Pruning, LayersAreChosenByCountStepOrList) {
  EXPECT_THAT(layers_to_keep("", 3, "x"), ElementsAre(0, 1, 2));
  EXPECT_THAT(layers_to_keep("first:2", 5, "x"), ElementsAre(0, 1));
  EXPECT_THAT(layers_to_keep("every:2", 5, "x"), ElementsAre(0, 2, 4));
  EXPECT_THAT(layers_to_keep("1,4", 5, "x"), ElementsAre(1, 4));
  for (const char* bad : {"5", "2,1", "1,1", "first:6", "first:0", "last:2", "every:", "a", "1,", "-1", "first:2x"}) {
    EXPECT_THAT(error_of([&] { layers_to_keep(bad, 5, "decoder_layers"); }), HasSubstr("decoder_layers")) << bad;
  }
}

TEST(Pruning, KeepingEverythingChangesNothing) {
  TransformerModel model(tiny_llama(4), 3);
  const auto same = prune(model, {});
  for (const auto& [name, tensor] : model.parameters()) EXPECT_TRUE(tensor.equal(same->parameters().at(name))) << name;
}

// Neurons and heads whose output weights are zero contribute nothing: cutting just them leaves the logits as they were.
TEST(Pruning, WhatContributesNothingIsCutFirst) {
  TransformerModel model(tiny_llama(4), 3);
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string block = "decoder." + std::to_string(layer);
    at::Tensor down = model.parameters().at(block + ".feed_forward.down.weight");  // [12,20]
    for (const int64_t neuron : {1, 7, 8, 19}) down.select(1, neuron).zero_();
    at::Tensor output = model.parameters().at(block + ".self_attention.output.weight");  // [12,24]
    output.narrow(1, (layer % 3) * 8, 8).zero_();  // a group of two heads, another one in each layer
  }
  const auto pruned = prune(model, {.ff_width = 16, .heads = 4});
  EXPECT_EQ(pruned->config().heads, 4);
  EXPECT_EQ(pruned->config().kv_heads, 2);
  const at::Tensor tokens = at::arange(0, 24, at::kLong).view({2, 12});
  EXPECT_LT(difference(logits(*pruned, tokens), logits(model, tokens)), 1e-5);
}

// The first tokens' activations, measured.
ActivationMoments moments_of(TransformerModel& model, const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  ActivationMoments moments(model.config());
  ForwardInput input{.source = {}, .target = {tokens, {tokens.size(1)}}, .hidden_layers = {}};
  input.observer = moments.observer();
  model.forward(input);
  return moments;
}

// Neurons whose gate is always 0 and heads whose values are: their other weights are the largest of all.
TEST(Pruning, ByActivationGoesWhatIsSilentHoweverLargeItsWeights) {
  TransformerConfig config = tiny_llama(4);
  config.activation = Activation::kRelu;
  TransformerModel model(config, 3);
  const at::Tensor tokens = at::arange(0, 24, at::kLong).view({1, 24});
  const std::vector<int64_t> silent = {1, 7, 8, 19};
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string block = "decoder." + std::to_string(layer);
    for (const int64_t neuron : silent) {
      model.parameters().at(block + ".feed_forward.gate.weight").select(0, neuron).zero_();
      model.parameters().at(block + ".feed_forward.up.weight").select(0, neuron).fill_(50);
      model.parameters().at(block + ".feed_forward.down.weight").select(1, neuron).fill_(50);
    }
    model.parameters().at(block + ".self_attention.value.weight").narrow(0, (layer % 3) * 4, 4).zero_();
    model.parameters().at(block + ".self_attention.output.weight").narrow(1, (layer % 3) * 8, 8).fill_(50);
  }
  const at::Tensor expected = logits(model, tokens);
  const ActivationMoments moments = moments_of(model, tokens);
  const auto pruned = prune(model, {.ff_width = 16, .heads = 4, .by = "activation"}, {.activations = &moments});
  EXPECT_LT(difference(logits(*pruned, tokens), expected), 1e-5);
}

TEST(Pruning, ActivationsAreTheRootMeanSquareOfWhatIsAdded) {
  TransformerModel model(tiny_t5(), 3);
  const TransformerConfig& config = model.config();
  const TokenBatch source = random_batch({5}, config.vocabulary, 1);
  const TokenBatch target = random_batch({4}, config.vocabulary, 2);
  std::map<std::string, at::Tensor> seen;
  ActivationMoments moments(config);
  const at::NoGradGuard no_grad;
  const auto observer = [&](const std::string& sublayer, const at::Tensor& activations) {
    seen[sublayer] = activations.clone();
    moments.add(sublayer, activations);
  };
  model.forward({.source = source, .target = target, .hidden_layers = {}, .observer = observer});
  EXPECT_EQ(seen.size(), 2u * 2 + 3 * 3);  // sublayers of two encoder and three decoder layers
  const auto weight = [&](const std::string& name) { return model.parameters().at(name + ".weight"); };
  const at::Tensor inner = seen.at("encoder.1.feed_forward");  // [1,5,F]
  const at::Tensor added = inner.select(2, 3).unsqueeze(2) * weight("encoder.1.feed_forward.down").select(1, 3);
  EXPECT_NEAR(moments.neurons(model, "encoder.1.feed_forward")[3].item<double>(),
              added.square().sum(2).mean().sqrt().item<double>(), 1e-5);
  const int64_t width = config.head_width;
  const at::Tensor context = seen.at("decoder.2.cross_attention").narrow(2, width, width);  // [1,4,K] of head 1
  const at::Tensor from_head = context.matmul(weight("decoder.2.cross_attention.output").narrow(1, width, width).t());
  EXPECT_NEAR(moments.heads(model, "decoder.2.cross_attention")[1].item<double>(),
              from_head.square().sum(2).mean().sqrt().item<double>(), 1e-5);
}

TEST(Pruning, HeadsThatShareAPositionBiasAreTheSameInAllLayers) {
  TransformerModel model(tiny_t5(), 3);
  const int64_t heads = model.config().heads;
  const auto pruned = prune(model, {.decoder_layers = "first:1", .heads = heads - 1});
  EXPECT_EQ(pruned->config().decoder_layers, 1);
  EXPECT_EQ(pruned->parameters().at("encoder.relative_bias.weight").size(1), heads - 1);
  EXPECT_EQ(pruned->parameters().at("decoder.0.cross_attention.key.weight").size(0),
            (heads - 1) * model.config().head_width);
}

TEST(Pruning, ShapesThatCannotBeAreErrors) {
  const TransformerModel model(tiny_llama(4), 3);
  EXPECT_THAT(error_of([&] { prune(model, {.heads = 5}); }), HasSubstr("multiple of 2"));
  EXPECT_THAT(error_of([&] { prune(model, {.heads = 8}); }), HasSubstr("at most 6"));
  EXPECT_THAT(error_of([&] { prune(model, {.ff_width = 21}); }), HasSubstr("at most 20"));
  EXPECT_THAT(error_of([&] { prune(model, {.decoder_layers = "4"}); }), HasSubstr("0..3"));
  EXPECT_THAT(error_of([&] { prune(model, {.encoder_layers = "0"}); }), HasSubstr("has no encoder"));
}

TEST(Pruning, FilesAreGivenWhereTheyAreUsed) {
  const auto problems_of = [](const PruneOptions& options) {
    Problems problems;
    validate_options(options, "small", problems);
    return error_of([&] { problems.throw_if_any(); });
  };
  EXPECT_EQ(problems_of({}), "no error");
  EXPECT_THAT(problems_of({.ff_width = 4, .by = "activation"}), HasSubstr("small.calibration"));
  EXPECT_THAT(problems_of({.by = "activation", .calibration = "a.h5"}), HasSubstr("all of them stay"));
  EXPECT_THAT(problems_of({.ff_width = 4, .calibration = "a.h5"}), HasSubstr("without text"));
  EXPECT_THAT(problems_of({.vocabulary_size = 100}), HasSubstr("small.vocabulary_from"));
}

}  // namespace
}  // namespace draftsmith::model
