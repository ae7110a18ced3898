// CALM: thresholds from full decoding to the first layer, batches, samples, statistics, measures whose values are
// known, and what a row that leaves early writes for the layers above.
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "infer/loop/decode_loop.h"
#include "infer/self_drafting/methods.h"
#include "model/transformer/decoder_state.h"
#include "tests/infer/self_drafting/plain_rows.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using Model = std::unique_ptr<model::TransformerModel>;

constexpr ExitMeasure kMeasures[] = {ExitMeasure::kSaturation, ExitMeasure::kMargin};

DecodeSettings settings_of(const model::TransformerModel& target, bool sampling) {
  DecodeSettings settings{.eos = target.info().eos};
  settings.warping = {sampling ? 1.0 : 0.0, sampling ? 9 : 0, sampling ? 0.95 : 1.0};
  return settings;
}

std::vector<Row> decode_by_calm(model::TransformerModel& target, const CalmSettings& calm, const PlainRows& rows,
                                size_t batch = 1, bool sampling = false) {
  const DecodeSettings settings = settings_of(target, sampling);
  return decode_rows(target, rows, batch, [&](RowBatch& own, PhaseTimer& timer) {
    decode_calm(target, nullptr, calm, settings, own, timer);
  });
}

PlainRows rows_for(const model::TransformerModel& target) {
  return {exit_sources(target)};
}

// All families and forms, and two models whose outputs vary more.
std::vector<Model> calm_models() {
  std::vector<Model> all;
  for (const auto& config : model::tiny_models()) {
    all.push_back(model::varied_model(config, 3));
    all.back()->requires_grad(false);
  }
  for (const Kind kind : kKinds) all.push_back(tandem_primary_model(kind));
  return all;
}

TEST(Calm, ThresholdAboveOneIsFullDecoding) {
  for (const Model& target : calm_models()) {
    const PlainRows rows = rows_for(*target);
    for (const bool sampling : {false, true}) {
      const DecodeSettings settings = settings_of(*target, sampling);
      const auto expected = decode_rows(
          *target, rows, 1, [&](RowBatch& own, PhaseTimer& timer) { decode_plainly(*target, settings, own, timer); });
      for (const size_t batch : {1, 2, 5}) {
        const auto found = decode_by_calm(*target, {kMeasures[batch % 2], 1.5, 4}, rows, batch, sampling);
        EXPECT_EQ(tokens_of(found), tokens_of(expected)) << target->info().name << " batch " << batch;
        for (const Row& row : found) {
          EXPECT_EQ(row.stats.exits_by_layer.back(), row.emitted());
          EXPECT_EQ(row.stats.layer_runs, row.emitted() * target->info().layers);
          EXPECT_EQ(row.stats.target_runs, row.emitted());
          EXPECT_EQ(row.stats.average_exit_layer(), target->info().layers);
        }
      }
    }
  }
}

// Thresholds between the measures of a model's layers, so that rows leave at different ones.
TEST(Calm, RowsOfABatchAreAsAlone) {
  size_t mixed = 0;
  for (const Model& target : calm_models()) {
    const PlainRows rows = rows_for(*target);
    for (const ExitMeasure measure : kMeasures) {
      for (const double threshold : {0.0, 0.5, 0.9}) {
        for (const bool sampling : {false, true}) {
          const auto alone = decode_by_calm(*target, {measure, threshold, 2}, rows, 1, sampling);
          std::set<size_t> layers;
          for (const Row& row : alone) {
            if (threshold == 0) {
              EXPECT_EQ(row.stats.exits_by_layer.front(), row.emitted());
            }
            for (size_t i = 0; i < row.stats.exits_by_layer.size(); ++i) {
              if (row.stats.exits_by_layer[i] > 0) layers.insert(i);
            }
          }
          mixed += layers.size() > 2 ? 1 : 0;
          for (const size_t batch : {3, 8}) {
            const auto together = decode_by_calm(*target, {measure, threshold, 2}, rows, batch, sampling);
            EXPECT_EQ(tokens_of(together), tokens_of(alone)) << target->info().name << " " << threshold;
            for (size_t b = 0; b < alone.size(); ++b) {
              EXPECT_EQ(together[b].stats.exits_by_layer, alone[b].stats.exits_by_layer);
              EXPECT_EQ(together[b].stats.layer_runs, alone[b].stats.layer_runs);
            }
          }
        }
      }
    }
  }
  EXPECT_GE(mixed, 6u);
}

TEST(Calm, ThresholdsDecayAsWritten) {
  const CalmSettings calm{ExitMeasure::kSaturation, 0.9, 4};
  EXPECT_NEAR(calm_threshold(calm, 0, 128), 0.91, 1e-12);
  EXPECT_NEAR(calm_threshold(calm, 32, 128), 0.81 + 0.1 * std::exp(-1.0), 1e-12);
  EXPECT_NEAR(calm_threshold(calm, 127, 128), 0.81 + 0.1 * std::exp(-4.0 * 127 / 128), 1e-12);
  EXPECT_NEAR(calm_threshold({ExitMeasure::kSaturation, 0.7, 0}, 50, 100), 0.73, 1e-12);  // temp 0: no decay
  EXPECT_NEAR(calm_threshold({ExitMeasure::kMargin, 0.7, 8}, 50, 100), 0.63 + 0.1 * std::exp(-4.0), 1e-12);
  for (const double end : {1.0, 7.0}) EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, end, 8}, 5, 100), 1);
  for (const double end : {0.0, -1.0}) EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, end, 8}, 5, 100), 0);
}

// A model whose layers change nothing: what any exit says of a token is known from its embedding.
Model idle_model(Kind kind) {
  Model made = tandem_primary_model(kind);
  for (const auto& [name, value] : made->parameters()) {
    const bool adds = name.ends_with("attention.output.weight") || name.ends_with("feed_forward.down.weight");
    if (name.starts_with("decoder") && adds) value.zero_();
  }
  return made;
}

TEST(Calm, TokensLeaveWhereTheMarginOfTheirExitPassesTheThreshold) {
  size_t early = 0, late = 0;
  for (const Kind kind : kKinds) {
    const Model target = idle_model(kind);
    const CalmSettings calm{ExitMeasure::kMargin, 0.5, 4};
    for (const Row& row : decode_by_calm(*target, calm, rows_for(*target), 3)) {
      std::vector<int64_t> expected(static_cast<size_t>(target->info().layers), 0);
      for (int64_t t = 0; t < row.emitted(); ++t) {
        const auto before = at::tensor({row.tokens[static_cast<size_t>(row.prefix + t - 1)]}, at::kLong);
        const auto hidden = target->parameters().at("embedding.weight").index_select(0, before);  // [1,D]
        const auto best = std::get<0>(target->exit_head(hidden).softmax(1).topk(2, 1));
        const double margin = (best[0][0] - best[0][1]).item<double>();
        const double threshold = 0.45 + 0.1 * std::exp(-4.0 * static_cast<double>(t) / 12);
        ++(margin > threshold ? expected.front() : expected.back());
        ++(margin > threshold ? early : late);
      }
      EXPECT_EQ(row.stats.exits_by_layer, expected);
    }
  }
  EXPECT_GE(early, 5u);
  EXPECT_GE(late, 5u);
}

// An exit of its own at layer 1, which is sure of one token.
TEST(Calm, ExitsGiveTheTokensOfThoseThatLeaveThere) {
  constexpr int64_t kToken = 9;
  for (const Kind kind : kKinds) {
    const Model target = tandem_primary_model(kind);
    const auto& config = target->config();
    at::Tensor head = at::zeros({config.vocabulary, config.width}, at::kDouble);
    const at::Tensor norm = at::zeros({config.width}, at::kDouble);
    norm[0] = 1;  // the head sees the first number alone, squared below to be positive
    head[kToken][0] = 1000;
    head[kToken + 1][0] = -1000;
    const model::ExitConfig exits_config{{{.layer = 1, .head = model::ExitHead::kFull, .own_norm = true}}, "", "", ""};
    const model::Exits own(exits_config, config, {{"exit.1.norm.weight", norm}, {"exit.1.head.weight", head}});
    const DecodeSettings settings = settings_of(*target, false);
    const auto rows = decode_rows(*target, rows_for(*target), 3, [&](RowBatch& batch, PhaseTimer& timer) {
      decode_calm(*target, &own, {ExitMeasure::kMargin, 0.9, 0}, settings, batch, timer);
    });
    for (const Row& row : rows) {
      EXPECT_EQ(row.stats.exits_by_layer.front(), row.emitted());
      for (int64_t t = row.prefix; t < row.length(); ++t) {
        const int64_t token = row.tokens[static_cast<size_t>(t)];
        EXPECT_TRUE(token == kToken || token == kToken + 1) << token;
      }
    }
  }
}

TEST(Calm, ProcessorsAndPaddingHoldAtEveryExit) {
  for (const Kind kind : kKinds) {
    const Model target = tandem_primary_model(kind);
    model::GenerationConfig generation{.eos_ids = target->info().eos, .no_repeat_ngram_size = 2, .min_new_tokens = 4};
    DecodeSettings settings = settings_of(*target, false);
    settings.processors = LogitsProcessors(generation);
    settings.ids = 15;
    for (const ExitMeasure measure : kMeasures) {
      for (const double threshold : {0.0, 0.6}) {
        const auto rows = decode_rows(*target, rows_for(*target), 3, [&](RowBatch& batch, PhaseTimer& timer) {
          decode_calm(*target, nullptr, {measure, threshold, 1}, settings, batch, timer);
        });
        for (const Row& row : rows) {
          EXPECT_GE(row.emitted(), 4);
          std::set<std::pair<int64_t, int64_t>> pairs;
          for (int64_t t = row.prefix; t < row.length(); ++t) {
            const auto i = static_cast<size_t>(t);
            EXPECT_LT(row.tokens[i], 15);
            if (t == row.prefix) continue;
            EXPECT_TRUE(pairs.insert({row.tokens[i - 1], row.tokens[i]}).second);
          }
        }
      }
    }
  }
}

// Returns the logits of a step in which the layers behind the first add nothing to what a token has.
at::Tensor step_of_one_layer(model::TransformerModel& target, int64_t token, model::DecodeState& state) {
  std::vector<std::pair<at::Tensor, at::Tensor>> silenced;
  for (const auto& [name, value] : target.parameters()) {
    const bool adds = name.find("attention.output.") != std::string::npos || name.find(".down.") != std::string::npos;
    if (!adds || !name.starts_with("decoder.") || name.starts_with("decoder.0.")) continue;
    silenced.emplace_back(value, value.clone());
    value.zero_();
  }
  const at::Tensor logits = target.step(model::step_input({{token}}), state).logits;
  for (const auto& [value, before] : silenced) value.copy_(before);
  return logits;
}

// Token 0 leaves at layer 1, and what it had there goes up. Token 1 runs through all layers, and so does token 2 in a
// step of the model itself.
TEST(CalmPropagation, EqualsStepsInWhichLayersBehindTheExitAddNothing) {
  const DecodeSettings settings{.warping = {.temperature = 0}};
  PhaseTimer timer(at::kCPU);
  for (const auto& config : {model::tiny_llama(3), model::tiny_gpt2(), model::tiny_neox(), model::tiny_bloom()}) {
    SCOPED_TRACE(config.family);
    const auto target = model::varied_model(config, 5);
    target->requires_grad(false);
    const PlainRows one{.sources = {{11}}, .limit = 1, .capacity = 3};
    RowBatch batch = begin_rows(*target, one, 0, 1);
    decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 0, 0}, settings, batch, timer);
    Row row = batch.finished.front();
    batch.finished.clear();
    row.finished = false;
    row.limit = 2;
    batch.rows = {row};
    decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 2, 0}, settings, batch, timer);
    row = batch.finished.front();
    const auto slow = begin_rows(*target, one, 0, 1).state;
    std::vector<int64_t> tokens{11};
    at::Tensor logits = step_of_one_layer(*target, tokens.back(), *slow);
    for (int step = 0; step < 2; ++step) {
      tokens.push_back(logits.argmax().item<int64_t>());
      logits = target->step(model::step_input({{tokens.back()}}), *slow).logits;
    }
    ASSERT_EQ(row.tokens, tokens);
    const at::Tensor found = target->step(model::step_input({{tokens.back()}}), *batch.state).logits;
    EXPECT_LT(difference(found, logits), 1e-11);
    const auto& own = dynamic_cast<const model::DecoderState&>(*batch.state);
    const auto& expected = dynamic_cast<const model::DecoderState&>(*slow);
    for (int64_t i = 0; i < 3; ++i) {
      for (const auto part : {&model::LayerCache::keys, &model::LayerCache::values}) {
        EXPECT_LT(difference(model::cached(own, i, part), model::cached(expected, i, part)), 1e-11) << "layer " << i;
      }
    }
  }
}

TEST(ExitMeasures, SimilaritiesAreCosinesOfWholeRows) {
  const at::Tensor a = normal_tensor({5, 1, 33}, 1, 1, "a", at::kDouble);
  const at::Tensor b = a + normal_tensor({5, 1, 33}, 0.7, 1, "b", at::kDouble);
  const at::Tensor expected = at::cosine_similarity(a.squeeze(1), b.squeeze(1), 1);
  const auto measured = cosine_similarities(a, b);
  ASSERT_EQ(measured.size(), 5u);
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_NEAR(measured[static_cast<size_t>(row)], expected[row].item<double>(), 1e-12);
  }
  for (const double similarity : cosine_similarities(a, a * 3)) EXPECT_LE(similarity, 1);
  EXPECT_TRUE(std::isnan(cosine_similarities(a, at::zeros_like(a)).front()));
}

// Half types go through tensor operations, as everything does on a GPU.
TEST(ExitMeasures, TensorOperationsMeasureTheSame) {
  const at::Tensor a = normal_tensor({4, 1, 33}, 1, 1, "a", at::kFloat).to(at::kBFloat16);
  const at::Tensor b = a + normal_tensor({4, 1, 33}, 0.7, 1, "b", at::kFloat).to(at::kBFloat16);
  const auto similarities = cosine_similarities(a, b);
  const auto expected_similarities = cosine_similarities(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor logits = normal_tensor({4, 50}, 2, 1, "logits", at::kFloat).to(at::kBFloat16);
  const auto margins = top_two_margins(logits);
  const auto expected_margins = top_two_margins(logits.to(at::kDouble));
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(similarities[row], expected_similarities[row], 1e-6);
    EXPECT_NEAR(margins[row], expected_margins[row], 1e-6);
  }
}

TEST(ExitMeasures, MarginsOfTiesSingleTokensAndDamagedNumbers) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::full({4, 3}, kNothing, at::kDouble);
  logits[0].fill_(2);
  logits[1][1] = 4;
  logits[2].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto margins = top_two_margins(logits);
  EXPECT_EQ(margins[0], 0);
  EXPECT_EQ(margins[1], 1);
  EXPECT_TRUE(std::isnan(margins[2]));
  EXPECT_TRUE(std::isnan(margins[3]));
}

}  // namespace
}  // namespace draftsmith::infer::testing
