// Exits of a model: their forms, formulas, gradients, and what is refused.
#include "model/kinds/exits.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/kinds/block_prediction.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

std::vector<TransformerConfig> configs() {
  return {exits_t5(), tiny_llama(3), tiny_bloom(), exits_pruned_llama()};
}

// The header's formula in tensor operations: norm, output scale, weight [rows,D].
at::Tensor formula(const TransformerModel& model, const Exits& exits, int64_t layer, const at::Tensor& hidden) {
  const TransformerConfig& config = model.config();
  const std::string prefix = "exit." + std::to_string(layer) + ".";
  const bool own = exits.find(layer)->own_norm;
  const auto norm_part = [&](const std::string& part) {
    return own ? exits.parameters().at(prefix + "norm." + part) : model.parameters().at("decoder.final_norm." + part);
  };
  const bool layer_norm = config.norm == Norm::kLayer;
  const at::Tensor centred = layer_norm ? hidden - hidden.mean(-1, true) : hidden;
  at::Tensor normed = centred / (centred.square().mean(-1, true) + config.norm_epsilon).sqrt() * norm_part("weight");
  if (layer_norm) normed = normed + norm_part("bias");
  at::Tensor weight = model.parameters().at(config.tied_head ? "embedding.weight" : "head.weight");
  const auto part = [&](const char* name) { return exits.parameters().at(prefix + name); };
  if (exits.find(layer)->head == ExitHead::kFull) weight = part("head.weight");
  if (exits.find(layer)->head == ExitHead::kLowRank) weight = weight + part("head.up").matmul(part("head.down"));
  return (normed * config.output_scale).matmul(weight.t());  // [...,rows]
}

TEST(Exits, PredictAtFirstWhatTheSharedHeadWould) {
  for (const TransformerConfig& config : configs()) {
    const auto model = tiny_model(config, at::kFloat);
    const at::Tensor hidden = random_hidden(config, at::kFloat);
    const at::Tensor shared = model->exit_head(hidden);
    for (size_t first = 0; first < 6; ++first) {
      const Exits exits(forms_for(config, first), *model, 5);
      for (const ExitShape& exit : exits.config().exits) {
        EXPECT_TRUE(at::allclose(exits.logits(*model, exit.layer, hidden), shared, 1e-5, 1e-6))
            << config.family << " " << first << " " << exit.layer;
      }
    }
  }
}

TEST(Exits, ComputeTheFormulaPlainAndPacked) {
  for (const TransformerConfig& config : configs()) {
    for (size_t first = 0; first < 6; first += 3) {
      const auto model = tiny_model(config, at::kDouble);
      Exits exits(forms_for(config, first), *model, 5);
      disturb(exits);
      const at::Tensor hidden = random_hidden(config, at::kDouble);
      std::vector<at::Tensor> wanted;
      for (int64_t layer = 1; layer <= 3; ++layer) {
        const at::Tensor rows = formula(*model, exits, layer, hidden);
        wanted.push_back(model->vocabulary_rows().spread(rows, -std::numeric_limits<double>::infinity()));
        EXPECT_TRUE(at::allclose(exits.logits(*model, layer, hidden), wanted.back(), 1e-10, 1e-10)) << layer;
        const at::Tensor by_weight =
            exits.finish(*model, layer, hidden).matmul(dense(exits.head(*model, layer)).t());  // [...,rows]
        EXPECT_TRUE(at::allclose(by_weight, rows, 1e-10, 1e-10)) << layer;
      }
      model->to(at::kCPU, at::kFloat);
      model->pack();
      exits.to(at::kCPU, at::kFloat);
      exits.pack();
      const at::NoGradGuard no_gradients;
      for (int64_t layer = 1; layer <= 3; ++layer) {
        const at::Tensor logits = exits.logits(*model, layer, hidden.to(at::kFloat));
        EXPECT_TRUE(at::allclose(logits.to(at::kDouble), wanted[static_cast<size_t>(layer - 1)], 1e-4, 1e-4)) << layer;
      }
    }
  }
}

// Also where heads are packed: what is packed has no gradients.
TEST(Exits, GradientsEqualFiniteDifferences) {
  const TransformerConfig config = tiny_bloom();
  const auto model = tiny_model(config, at::kDouble);
  Exits exits(forms_for(config), *model, 5);
  disturb(exits);
  exits.pack();
  const at::Tensor hidden = random_hidden(config, at::kDouble);
  const at::Tensor factors = at::randn({2, 3, config.vocabulary}, at::detail::createCPUGenerator(4), at::kDouble);
  for (const bool by_weight : {false, true}) {
    const auto loss = [&] {
      at::Tensor sum = at::zeros({}, at::kDouble);
      for (int64_t layer = 1; layer <= 3; ++layer) {
        const at::Tensor logits = by_weight
                                      ? exits.finish(*model, layer, hidden).matmul(dense(exits.head(*model, layer)).t())
                                      : exits.logits(*model, layer, hidden);
        sum = sum + (logits.log_softmax(-1) * factors).sum();
      }
      return sum;
    };
    for (const auto& entry : exits.parameters()) {
      entry.second.mutable_grad() = at::Tensor();
      entry.second.requires_grad_(true);
    }
    loss().backward();
    const at::NoGradGuard no_gradients;
    exits.unpack();
    for (const auto& [name, value] : exits.parameters()) {
      const at::Tensor flat = value.view(-1);
      const at::Tensor gradient = value.grad().view(-1);
      for (int64_t i = 0; i < flat.numel(); i += std::max<int64_t>(1, flat.numel() / 7)) {
        constexpr double kStep = 1e-5;
        const auto before = flat[i].item<double>();
        flat[i] = before + kStep;
        const double above = loss().item<double>();
        flat[i] = before - kStep;
        const double below = loss().item<double>();
        flat[i] = before;
        EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-6) << name << " " << i;
      }
    }
    exits.pack();
  }
}

TEST(Exits, LayersWithoutAnExitReadTheModelsOwnNormAndHead) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  Exits exits({.exits = {{.layer = 2, .head = ExitHead::kFull, .own_norm = true}}}, *model, 5);
  disturb(exits);
  const at::Tensor hidden = random_hidden(model->config(), at::kFloat);
  const at::Tensor own = model->exit_head(hidden);
  EXPECT_EQ(exits.find(1), nullptr);
  ASSERT_NE(exits.find(2), nullptr);
  EXPECT_TRUE(at::equal(exits.logits(*model, 1, hidden), own));
  EXPECT_TRUE(at::equal(exits.finish(*model, 3, hidden), model->finish(hidden)));
  EXPECT_TRUE(exits.head(*model, 1).weight.is_same(model->parameters().at("embedding.weight")));
  EXPECT_TRUE(at::equal(exit_logits(*model, nullptr, 2, hidden), own));
  EXPECT_FALSE(at::equal(exit_logits(*model, &exits, 2, hidden), own));
}

TEST(Exits, IdsWithoutARowGetNoProbability) {
  const TransformerConfig config = exits_pruned_llama();
  const auto model = tiny_model(config, at::kFloat);
  Exits exits(forms_for(config), *model, 5);
  disturb(exits);
  const at::Tensor hidden = random_hidden(config, at::kFloat);
  for (int64_t layer = 1; layer <= 3; ++layer) {
    const at::Tensor logits = exits.logits(*model, layer, hidden);
    ASSERT_EQ(logits.size(-1), 31);
    EXPECT_EQ(at::isfinite(logits).sum().item<int64_t>(), 2 * 3 * 6) << layer;
    EXPECT_TRUE(at::isfinite(logits.select(-1, 30)).all().item<bool>()) << layer;
  }
}

TEST(Exits, StartDependsOnTheSeedAlone) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  const ExitConfig config{.exits = {{.layer = 1, .head = ExitHead::kLowRank, .rank = 2}}};
  const auto down = [&](uint64_t seed) { return Exits(config, *model, seed).parameters().at("exit.1.head.down"); };
  EXPECT_TRUE(at::equal(down(3), down(3)));
  EXPECT_FALSE(at::equal(down(3), down(4)));
}

TEST(Exits, ParametersAreCopiesThatCanBeConverted) {
  const auto model = tiny_model(tiny_bloom(), at::kFloat);
  Exits exits(forms_for(model->config()), *model, 5);
  const at::Tensor before = model->parameters().at("embedding.weight").clone();
  disturb(exits);
  EXPECT_TRUE(at::equal(model->parameters().at("embedding.weight"), before));
  exits.parameters().at("exit.1.norm.bias").requires_grad_(true);
  exits.to(at::kCPU, at::kBFloat16);
  for (const auto& entry : exits.parameters()) EXPECT_EQ(entry.second.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(exits.parameters().at("exit.1.norm.bias").requires_grad());
  EXPECT_FALSE(exits.parameters().at("exit.1.norm.weight").requires_grad());
}

TEST(Exits, NumbersOfEveryFormAreCounted) {
  const TransformerConfig bloom = tiny_bloom();  // width 24, 31 ids, layer norms
  EXPECT_EQ(count_numbers({.layer = 1}, bloom), 0);
  EXPECT_EQ(count_numbers({.layer = 1, .own_norm = true}, bloom), 48);
  EXPECT_EQ(count_numbers({.layer = 1, .head = ExitHead::kFull}, bloom), 31 * 24);
  EXPECT_EQ(count_numbers({.layer = 1, .head = ExitHead::kLowRank, .rank = 3}, bloom), 3 * (31 + 24));
  EXPECT_EQ(count_numbers({.layer = 1, .own_norm = true}, tiny_llama()), 12);
  EXPECT_EQ(count_numbers({.layer = 1, .head = ExitHead::kFull}, exits_pruned_llama()), 6 * 12);
}

TEST(Exits, WhatFitsNoModelIsRefusedByName) {
  const auto model = tiny_model(exits_t5(), at::kFloat);  // 3 decoder layers, width 20
  const auto refusal = [&](std::vector<ExitShape> exits) {
    return error_of([&] { Exits({.exits = std::move(exits)}, *model, 1); });
  };
  const auto said = [](const std::string& message, const char* text) {
    return message.find(text) != std::string::npos ? std::string() : message;
  };
  EXPECT_EQ(said(refusal({}), "no exits"), "");
  EXPECT_EQ(said(refusal({{.layer = 0}}), "outside the model"), "");
  EXPECT_EQ(said(refusal({{.layer = 4}}), "1..3"), "");
  EXPECT_EQ(said(refusal({{.layer = 2}, {.layer = 2}}), "given twice"), "");
  EXPECT_EQ(said(refusal({{.layer = 2}, {.layer = 1}}), "out of order"), "");
  EXPECT_EQ(said(refusal({{.layer = 1, .head = ExitHead::kLowRank}}), "rank"), "");
  EXPECT_EQ(said(refusal({{.layer = 1, .head = ExitHead::kLowRank, .rank = 21}}), "1 to 20"), "");
  EXPECT_EQ(refusal({{.layer = 1, .head = ExitHead::kLowRank, .rank = 20}, {.layer = 3}}), "no error");
  const std::string all = refusal({{.layer = 5}, {.layer = 1, .head = ExitHead::kLowRank, .rank = -1}});
  EXPECT_EQ(said(all, "5"), "");
  EXPECT_EQ(said(all, "rank"), "");
  const TransformerModel blocks(block_prediction_config(tiny_bloom(), 4), 3);
  EXPECT_EQ(said(error_of([&] { Exits({.exits = {{.layer = 1}}}, blocks, 1); }), "block prediction"), "");
}

TEST(Exits, MissingUnknownAndMisshapenParametersAreRefused) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  const ExitConfig config = forms_for(model->config());
  auto parameters = Exits(config, *model, 1).parameters();
  EXPECT_EQ(error_of([&] { Exits(config, model->config(), parameters); }), "no error");
  parameters.erase("exit.1.head.up");
  parameters["exit.3.norm.bias"] = at::zeros({20});  // of layer norms alone
  parameters["exit.2.head.weight"] = at::zeros({23, 19});
  const std::string message = error_of([&] { Exits(config, model->config(), parameters); });
  EXPECT_NE(message.find("exit.1.head.up [23, 2]"), std::string::npos) << message;
  EXPECT_NE(message.find("exit.3.norm.bias"), std::string::npos) << message;
  EXPECT_NE(message.find("[23, 19]"), std::string::npos) << message;
}

}  // namespace
}  // namespace draftsmith::model
