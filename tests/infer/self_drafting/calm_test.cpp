// CALM: thresholds from full decoding to the first layer, batches, samples, statistics, measures whose values are
// known, and what a row that leaves early writes for the layers above: against the layers' arithmetic written out
// position by position (GPT-2's: layer norms, learned positions, biases), in fp64.
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "infer/loop/decode_loop.h"
#include "infer/self_drafting/methods.h"
#include "model/transformer/decoder_state.h"
#include "tests/infer/self_drafting/plain_rows.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using Model = std::unique_ptr<model::TransformerModel>;

constexpr ExitMeasure kMeasures[] = {ExitMeasure::kSaturation, ExitMeasure::kMargin};

DecodeSettings settings_of(const model::TransformerModel& target, bool sampling) {
  DecodeSettings settings;
  settings.warping = {sampling ? 1.0 : 0.0, sampling ? 9 : 0, sampling ? 0.95 : 1.0};
  settings.eos = target.info().eos;
  return settings;
}

std::vector<Row> decode_by_calm(model::TransformerModel& target, const CalmSettings& calm, const PlainRows& rows,
                                size_t batch = 1, bool sampling = false) {
  const DecodeSettings settings = settings_of(target, sampling);
  return decode_rows(target, rows, batch, [&](RowBatch& own, PhaseTimer& timer) {
    decode_calm(target, nullptr, calm, settings, own, timer);
  });
}

std::vector<Row> decode_fully(model::TransformerModel& target, const PlainRows& rows, bool sampling = false) {
  const DecodeSettings settings = settings_of(target, sampling);
  return decode_rows(target, rows, 1,
                     [&](RowBatch& own, PhaseTimer& timer) { decode_plainly(target, settings, own, timer); });
}

PlainRows rows_for(const model::TransformerModel& target) {
  PlainRows rows{tandem_sources(target.info().encoder_decoder ? Kind::kEncoderDecoder : Kind::kDecoderOnly)};
  for (auto& source : rows.sources) {
    for (int64_t& id : source) id = std::min(id, target.info().vocabulary - 1);
  }
  return rows;
}

// All families and forms, and two models whose outputs vary more.
std::vector<Model> calm_models() {
  std::vector<Model> all;
  for (const auto& config : model::tiny_models()) {
    all.push_back(model::varied_model(config, 3));
    all.back()->requires_grad(false);
  }
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) all.push_back(tandem_primary_model(kind));
  return all;
}

TEST(Calm, ThresholdAboveOneIsFullDecoding) {
  for (const Model& target : calm_models()) {
    const PlainRows rows = rows_for(*target);
    for (const bool sampling : {false, true}) {
      const auto expected = decode_fully(*target, rows, sampling);
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
  size_t early = 0;
  size_t late = 0;
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) {
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
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) {
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
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) {
    const Model target = tandem_primary_model(kind);
    model::GenerationConfig generation;
    generation.eos_ids = target->info().eos;
    generation.no_repeat_ngram_size = 2;
    generation.min_new_tokens = 4;
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

// Keys and values of one layer, a vector [H*K] for each position.
struct HandCache {
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
};

class HandModel {
 public:
  explicit HandModel(const model::TransformerModel& model) : config_(model.config()), own_(model.parameters()) {}

  at::Tensor embed(int64_t token, int64_t position) const {
    return own_.at("embedding.weight")[token] + own_.at("decoder.positions.weight")[position];
  }

  // As if `x` [D] were the layer's input at the next position.
  void write(int64_t layer, const at::Tensor& x, HandCache& cache) const {
    const std::string name = "decoder." + std::to_string(layer) + ".self_attention";
    const at::Tensor normed = norm(name + ".norm", x);
    cache.keys.push_back(linear(name + ".key", normed));
    cache.values.push_back(linear(name + ".value", normed));
  }

  // A layer at the last position of the cache, whose keys and values are those of `x`.
  at::Tensor run(int64_t layer, const at::Tensor& x, const HandCache& cache) const {
    const std::string block = "decoder." + std::to_string(layer);
    const at::Tensor query =
        linear(block + ".self_attention.query", norm(block + ".self_attention.norm", x)) * config_.attention_scale;
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < config_.heads; ++h) {
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, h * config_.head_width, config_.head_width);
      };
      double total = 0;
      at::Tensor sum = at::zeros({config_.head_width}, at::kDouble);
      for (size_t j = 0; j < cache.keys.size(); ++j) {
        const double weight = std::exp(part(query).dot(part(cache.keys[j])).item<double>());
        total += weight;
        sum += weight * part(cache.values[j]);
      }
      heads.push_back(sum / total);
    }
    const at::Tensor attended = x + linear(block + ".self_attention.output", at::cat(heads));
    const at::Tensor inner = linear(block + ".feed_forward.up", norm(block + ".feed_forward.norm", attended));
    return attended + linear(block + ".feed_forward.down", inner.clamp_min(0));
  }

  at::Tensor logits(const at::Tensor& hidden) const {
    return own_.at("embedding.weight").matmul(norm("decoder.final_norm", hidden));
  }

 private:
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor centred = x - x.mean();
    return centred / (centred.square().mean() + config_.norm_epsilon).sqrt() * own_.at(name + ".weight") +
           own_.at(name + ".bias");
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return own_.at(name + ".weight").matmul(x) + own_.at(name + ".bias");
  }

  const model::TransformerConfig& config_;
  const std::map<std::string, at::Tensor>& own_;
};

std::unique_ptr<model::TransformerModel> relu_model(int64_t layers) {
  model::TransformerConfig config = model::tiny_gpt2();
  config.decoder_layers = layers;
  config.activation = model::Activation::kRelu;
  config.eos = {};
  auto made = model::varied_model(config, 5);
  made->requires_grad(false);
  return made;
}

// Keys or values of a state's first row, as the hand-made ones. [T,H*K]
at::Tensor flat(const at::Tensor& heads) {
  return heads[0].transpose(0, 1).flatten(1);
}

// Token 0 leaves at layer 1, token 1 runs through all layers, and so does token 2 in a step of the model itself.
TEST(CalmPropagation, EqualsTheLayersWrittenOut) {
  constexpr int64_t kPrompt = 11;
  constexpr int64_t kLayers = 3;
  const auto target = relu_model(kLayers);
  const HandModel hand(*target);
  DecodeSettings settings;
  settings.warping.temperature = 0;
  PhaseTimer timer(at::kCPU);

  RowBatch batch = begin_rows(*target, {.sources = {{kPrompt}}, .limit = 1, .capacity = 3}, 0, 1);
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 0, 0}, settings, batch, timer);
  Row row = batch.finished.front();
  batch.finished.clear();
  row.finished = false;
  row.limit = 2;
  batch.rows = {row};
  decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 2, 0}, settings, batch, timer);
  row = batch.finished.front();
  ASSERT_EQ(row.emitted(), 2);

  std::vector<HandCache> caches(static_cast<size_t>(kLayers));
  std::vector<int64_t> tokens{kPrompt};
  at::Tensor logits;
  for (int64_t t = 0; t < 3; ++t) {
    at::Tensor x = hand.embed(tokens.back(), t);
    for (int64_t i = 0; i < kLayers; ++i) {
      HandCache& cache = caches[static_cast<size_t>(i)];
      hand.write(i, x, cache);
      const bool runs = t > 0 || i == 0;  // token 0 left: what it had at layer 1 goes up
      if (runs) x = hand.run(i, x, cache);
    }
    logits = hand.logits(x);
    if (t < 2) tokens.push_back(logits.argmax().item<int64_t>());
  }

  EXPECT_EQ(row.tokens, tokens);
  const auto step = target->step(model::step_input({{row.tokens.back()}}), *batch.state);
  EXPECT_LT(difference(step.logits[0][0], logits), 1e-11);
  const auto& state = dynamic_cast<const model::DecoderState&>(*batch.state);
  for (int64_t i = 0; i < kLayers; ++i) {
    const HandCache& cache = caches[static_cast<size_t>(i)];
    EXPECT_LT(difference(flat(model::cached(state, i)), at::stack(cache.keys)), 1e-11) << "layer " << i;
    EXPECT_LT(difference(flat(model::cached(state, i, &model::LayerCache::values)), at::stack(cache.values)), 1e-11)
        << "layer " << i;
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
