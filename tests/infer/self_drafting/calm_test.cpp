// CALM: thresholds from full decoding to the first layer, batches, samples, statistics, measures whose values are
// known.
#include "infer/inside/calm.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "infer/inside/exit_measures.h"
#include "model/transformer/decoder_state.h"
#include "tests/infer/inside/calm_fixtures.h"
#include "tests/model/kinds/tandem_passes.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"

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

// All families, and two models whose outputs vary more.
std::vector<Model> models() {
  std::vector<Model> all;
  for (const auto& config : model::tiny_families()) {
    all.push_back(model::varied_model(config, 3));
    all.back()->requires_grad(false);
  }
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) all.push_back(tandem_primary_model(kind));
  return all;
}

int64_t exits(const std::vector<Row>& rows) {
  int64_t count = 0;
  for (const Row& row : rows) {
    for (const int64_t tokens : row.stats.exits_by_layer) count += tokens;
  }
  return count;
}

int64_t emitted(const std::vector<Row>& rows) {
  int64_t count = 0;
  for (const Row& row : rows) count += row.emitted();
  return count;
}

TEST(Calm, ThresholdAboveOneIsFullDecoding) {
  for (const Model& target : models()) {
    const PlainRows rows = rows_for(*target);
    for (const bool sampling : {false, true}) {
      const auto expected = decode_fully(*target, rows, sampling);
      for (size_t batch = 1; batch <= 5; ++batch) {
        const auto found = decode_by_calm(*target, {kMeasures[batch % 2], 1.5, 4}, rows, batch, sampling);
        EXPECT_EQ(tokens_of(found), tokens_of(expected)) << target->info().name << " batch " << batch;
        for (const Row& row : found) {
          EXPECT_EQ(row.stats.exits_by_layer.back(), row.emitted());
          EXPECT_EQ(row.stats.layer_runs, row.emitted() * target->info().layers);
          EXPECT_EQ(row.stats.target_runs, row.emitted());
        }
      }
    }
  }
}

TEST(Calm, ThresholdOfZeroOrLessLeavesAtTheFirstLayer) {
  for (const Model& target : models()) {
    const PlainRows rows = rows_for(*target);
    for (const double threshold : {0.0, -1.0}) {
      for (const ExitMeasure measure : kMeasures) {
        const auto alone = decode_by_calm(*target, {measure, threshold, 4}, rows);
        for (const Row& row : alone) {
          EXPECT_EQ(row.stats.exits_by_layer.front(), row.emitted());
          EXPECT_EQ(row.stats.layer_runs, row.emitted());
          EXPECT_EQ(row.stats.average_exit_layer(), 1);
        }
        for (const size_t batch : {2, 5}) {
          EXPECT_EQ(tokens_of(decode_by_calm(*target, {measure, threshold, 4}, rows, batch)), tokens_of(alone));
        }
      }
    }
  }
}

// Thresholds between the measures of a model's layers, so that rows leave at different ones.
TEST(Calm, RowsOfABatchAreAsAlone) {
  size_t mixed = 0;
  for (const Model& target : models()) {
    const PlainRows rows = rows_for(*target);
    for (const ExitMeasure measure : kMeasures) {
      for (const double threshold : {0.5, 0.9}) {
        for (const bool sampling : {false, true}) {
          const auto alone = decode_by_calm(*target, {measure, threshold, 2}, rows, 1, sampling);
          std::set<size_t> layers;
          for (const Row& row : alone) {
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

TEST(Calm, HistogramsAndLayerRunsAddUpAndCachesStayEven) {
  for (const Model& target : models()) {
    const PlainRows rows = rows_for(*target);
    const DecodeSettings settings = settings_of(*target, false);
    for (const size_t batch_size : {1, 3}) {
      const auto decoded = decode_rows(*target, rows, batch_size, [&](RowBatch& batch, PhaseTimer& timer) {
        auto& state = dynamic_cast<model::DecoderState&>(*batch.state);
        const int64_t prompts = state.layer_runs();
        decode_calm(*target, nullptr, {ExitMeasure::kSaturation, 0.8, 2}, settings, batch, timer);
        int64_t runs = 0;
        for (const Row& row : batch.finished) runs += row.stats.layer_runs;
        EXPECT_EQ(state.layer_runs() - prompts, runs);
        for (int64_t b = 0; b < state.rows(); ++b) {
          for (int64_t layer = 1; layer < target->info().layers; ++layer) {
            EXPECT_EQ(state.layer_length(layer, b), state.layer_length(0, b));
          }
        }
      });
      EXPECT_EQ(exits(decoded), emitted(decoded));
      DecodeStats sum;
      int64_t all_runs = 0;
      for (const Row& row : decoded) {
        sum += row.stats;
        all_runs += row.stats.layer_runs;
      }
      EXPECT_EQ(sum.layer_runs, all_runs);
      EXPECT_DOUBLE_EQ(sum.average_exit_layer(), static_cast<double>(all_runs) / static_cast<double>(sum.emitted));
      for (const Row& row : decoded) {
        int64_t runs = 0;
        for (size_t i = 0; i < row.stats.exits_by_layer.size(); ++i) {
          runs += static_cast<int64_t>(i + 1) * row.stats.exits_by_layer[i];
        }
        EXPECT_EQ(row.stats.layer_runs, runs);
        EXPECT_DOUBLE_EQ(row.stats.average_exit_layer(),
                         static_cast<double>(runs) / static_cast<double>(row.emitted()));
      }
    }
  }
}

TEST(Calm, ThresholdsDecayAsWritten) {
  const CalmSettings calm{ExitMeasure::kSaturation, 0.9, 4};
  EXPECT_NEAR(calm_threshold(calm, 0, 128), 0.91, 1e-12);
  EXPECT_NEAR(calm_threshold(calm, 32, 128), 0.81 + 0.1 * std::exp(-1.0), 1e-12);
  EXPECT_NEAR(calm_threshold(calm, 127, 128), 0.81 + 0.1 * std::exp(-4.0 * 127 / 128), 1e-12);
  EXPECT_NEAR(calm_threshold({ExitMeasure::kSaturation, 0.7, 0}, 50, 100), 0.73, 1e-12);  // temp 0: no decay
  EXPECT_NEAR(calm_threshold({ExitMeasure::kMargin, 0.7, 8}, 50, 100), 0.63 + 0.1 * std::exp(-4.0), 1e-12);
}

TEST(Calm, TheEndsOfThresholdsDoNotDecay) {
  for (const int64_t t : {0, 5, 99}) {
    EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, 1, 8}, t, 100), 1);
    EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, 7, 8}, t, 100), 1);
    EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, 0, 8}, t, 100), 0);
    EXPECT_EQ(calm_threshold({ExitMeasure::kMargin, -1, 8}, t, 100), 0);
  }
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

// After layer 1 there is no layer before to compare with: at the earliest, a token leaves after layer 2.
TEST(Calm, AHiddenStateThatStaysIsSaturatedAtTheSecondLayer) {
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) {
    const Model target = idle_model(kind);
    const auto rows = decode_by_calm(*target, {ExitMeasure::kSaturation, 0.98, 4}, rows_for(*target), 3);
    for (const Row& row : rows) {
      EXPECT_EQ(row.stats.exits_by_layer[0], 0);
      EXPECT_EQ(row.stats.exits_by_layer[1], row.emitted());
    }
    EXPECT_EQ(tokens_of(rows), tokens_of(decode_fully(*target, rows_for(*target))));
  }
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
      for (const double threshold : {0.0, 0.6, 2.0}) {
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

}  // namespace
}  // namespace draftsmith::infer::testing
