// Predictive pipelined decoding writes what greedy decoding writes, counts what it does, and leaves caches behind that
// are those of its output.
#include "infer/inside/ppd.h"

#include <limits>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "evaluate/theory/formulas.h"
#include "infer/inside/ppd_account.h"
#include "tests/infer/inside/ppd_fixtures.h"
#include "tests/support/batches.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using model::transformer_state;

class Ppd : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<model::TransformerModel> make(int64_t layers, at::ScalarType type = at::kDouble) const {
    return exit_model({.family = GetParam(), .type = type, .layers = layers});
  }
};

std::string describe(const PpdDecoding& decoding) {
  return "d-bar " + std::to_string(decoding.ppd.early_layer) + ", k " + std::to_string(decoding.ppd.candidates) +
         ", batch " + std::to_string(decoding.batch);
}

// Random heads at every layer: candidates that are hardly ever right.
model::Exits random_exits(const model::TransformerModel& model) {
  model::ExitConfig config;
  for (int64_t layer = 1; layer < model.info().layers; ++layer) {
    config.exits.push_back({.layer = layer, .head = model::ExitHead::kFull, .own_norm = true});
  }
  model::Exits exits(config, model, 5);
  for (const auto& [name, value] : exits.parameters()) {
    if (name.ends_with("head.weight")) value.copy_(at::randn(value.sizes(), value.options()));
  }
  return exits;
}

TEST_P(Ppd, EqualsGreedyForEveryLayerBatchSizeAndNumberOfCandidates) {
  for (const int64_t layers : {2, 4, 5}) {
    const auto model = make(layers);
    const auto sources = exit_sources(*model);
    const auto expected = run_plainly(*model, sources, {}).ids;
    for (int64_t early = (layers + 1) / 2; early < layers; ++early) {
      for (const int64_t candidates : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, kExitVocabulary}) {
        for (int64_t batch = 1; batch <= 6; ++batch) {
          PpdDecoding decoding;
          decoding.ppd = {early, candidates};
          decoding.batch = batch;
          ASSERT_EQ(run_ppd(*model, sources, decoding).ids, expected) << layers << " layers, " << describe(decoding);
        }
      }
    }
  }
}

TEST_P(Ppd, EqualsGreedyInSinglePrecision) {
  const auto model = make(4, at::kFloat);
  const auto sources = exit_sources(*model);
  const auto expected = run_plainly(*model, sources, {}).ids;
  for (const int64_t batch : {1, 4}) {
    PpdDecoding decoding;
    decoding.ppd = {2, 3};
    decoding.batch = batch;
    EXPECT_EQ(run_ppd(*model, sources, decoding).ids, expected) << describe(decoding);
  }
}

TEST_P(Ppd, EqualsGreedyWhateverItsHeadsPredict) {
  const auto model = make(4);
  const auto sources = exit_sources(*model);
  const model::Exits exits = random_exits(*model);
  PpdDecoding decoding;
  const auto expected = run_plainly(*model, sources, decoding).ids;
  decoding.exits = &exits;
  std::map<int64_t, int64_t> misses;
  for (const int64_t candidates : {int64_t{1}, int64_t{4}, kExitVocabulary}) {
    decoding.ppd = {3, candidates};
    decoding.batch = 3;
    const PpdOutput output = run_ppd(*model, sources, decoding);
    EXPECT_EQ(output.ids, expected) << describe(decoding);
    for (const DecodeStats& stats : output.stats) {
      misses[candidates] += stats.early_predictions - stats.early_matches;
    }
  }
  EXPECT_GT(misses[1], 0);
  EXPECT_EQ(misses[kExitVocabulary], 0);
}

TEST_P(Ppd, MatchesAreThoseOfTeacherForcing) {
  const auto model = make(5);
  const auto sources = exit_sources(*model);
  int64_t matches = 0;
  int64_t misses = 0;
  for (const int64_t candidates : {1, 3}) {
    PpdDecoding decoding;
    decoding.ppd = {3, candidates};
    decoding.batch = 4;
    const PpdOutput output = run_ppd(*model, sources, decoding);
    for (size_t i = 0; i < sources.size(); ++i) {
      const ForcedMatches forced = forced_matches(*model, sources[i], output.ids[i], decoding);
      const DecodeStats& stats = output.stats[i];
      EXPECT_EQ(stats.early_predictions, forced.predictions) << i;
      EXPECT_EQ(stats.early_matches, forced.matches) << i;
      EXPECT_EQ(stats.compute_units, stats.latency_units + 2 * forced.branches) << i;
      matches += forced.matches;
      misses += forced.predictions - forced.matches;
    }
  }
  EXPECT_GT(matches, 0);
  EXPECT_GT(misses, 0);
}

// Layers run are counted by the decode state, units by the account.
TEST_P(Ppd, UnitsAreTheLayersThatRanAndTheTheorems) {
  const auto model = make(5);
  const auto sources = exit_sources(*model);
  for (int64_t early = 3; early < 5; ++early) {
    PpdDecoding decoding;
    decoding.ppd = {early, 2};
    decoding.batch = 3;
    const PpdOutput output = run_ppd(*model, sources, decoding);
    int64_t runs = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const DecodeStats& stats = output.stats[i];
      const double rate = stats.early_predictions > 0 ? stats.match_rate() : 0;
      const evaluate::PpdCost theorem = evaluate::ppd_cost({5, early, 2, rate}, stats.emitted);
      EXPECT_NEAR(static_cast<double>(stats.latency_units), theorem.latency, 1e-9);
      EXPECT_LE(static_cast<double>(stats.compute_units), theorem.compute + 1e-9);
      EXPECT_EQ(stats.layer_runs, stats.compute_units);
      EXPECT_EQ(stats.target_runs, stats.emitted);
      runs += stats.compute_units;
    }
    EXPECT_EQ(runs, std::accumulate(output.layer_runs.begin(), output.layer_runs.end(), int64_t{0}));
  }
}

TEST_P(Ppd, CachesAreThoseOfItsOutput) {
  const auto model = make(5);
  auto sources = exit_sources(*model);
  sources.resize(4);
  PpdDecoding decoding;
  decoding.ppd = {3, 3};
  decoding.batch = 4;
  decoding.settings.eos = {};  // so that all rows stay to the end
  const PpdOutput output = run_ppd(*model, sources, decoding);
  const PpdOutput plain = run_plainly(*model, sources, decoding);
  ASSERT_EQ(output.ids, plain.ids);
  const auto& ours = transformer_state(*output.states.front());
  const auto& theirs = transformer_state(*plain.states.front());
  for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(ours.length(row), theirs.length(row));
  for (int64_t layer = 0; layer < 5; ++layer) {
    ASSERT_EQ(ours.keys(layer).sizes(), theirs.keys(layer).sizes());
    EXPECT_LT(difference(ours.keys(layer), theirs.keys(layer)), 1e-11);
    EXPECT_LT(difference(ours.values(layer), theirs.values(layer)), 1e-11);
  }
}

// Past the slots and positions that a state begins with, which grow for branches first.
TEST_P(Ppd, EqualsGreedyWhereCachesAndTablesGrow) {
  const auto model = make(2);
  auto sources = exit_sources(*model);
  sources.resize(3);
  PpdDecoding decoding;
  decoding.ppd = {1, 3};
  decoding.batch = 3;
  decoding.limit = 150;
  decoding.settings.eos = {};
  EXPECT_EQ(run_ppd(*model, sources, decoding).ids, run_plainly(*model, sources, decoding).ids);
}

TEST_P(Ppd, ShortLimits) {
  const auto model = make(4);
  const auto sources = exit_sources(*model);
  for (int64_t limit = 1; limit <= 4; ++limit) {
    PpdDecoding decoding;
    decoding.ppd = {2, kExitVocabulary};
    decoding.limit = limit;
    decoding.batch = 3;
    const PpdOutput output = run_ppd(*model, sources, decoding);
    EXPECT_EQ(output.ids, run_plainly(*model, sources, decoding).ids);
    for (const DecodeStats& stats : output.stats) {
      EXPECT_EQ(stats.layer_runs == 4, limit == 1);
      EXPECT_EQ(stats.early_matches, stats.emitted - 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Ppd, ::testing::Values("t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom"),
                         [](const auto& family) { return family.param; });

// A token that is forced is the only candidate, too, whatever a head predicts.
TEST(PpdCandidates, ArePredictedAsDecodingWouldChooseThem) {
  const auto model = exit_model({});
  const auto sources = exit_sources(*model);
  const model::Exits exits = random_exits(*model);
  model::GenerationConfig generation;
  generation.forced_bos = 9;
  PpdDecoding decoding;
  decoding.ppd = {3, 1};
  decoding.exits = &exits;
  decoding.settings.processors = LogitsProcessors(generation);
  decoding.settings.ids = 20;
  const PpdOutput output = run_ppd(*model, sources, decoding);
  EXPECT_EQ(output.ids, run_plainly(*model, sources, decoding).ids);
  for (const DecodeStats& stats : output.stats) EXPECT_GE(stats.early_matches, stats.emitted > 1 ? 1 : 0);
}

TEST(PpdCandidates, AreTheMostLikelyTokensAndNoneThatIsRuledOut) {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::tensor({1.0, 3.0, kMasked, 2.0, kMasked, 1.0, 0.0, 5.0}, at::kDouble).view({2, 4});
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto two = most_likely_tokens(logits.to(type), 2);
    EXPECT_EQ(two, (std::vector<std::vector<int64_t>>{{1, 3}, {3, 1}})) << type;
    const auto all = most_likely_tokens(logits.to(type), 4);
    EXPECT_EQ(all, (std::vector<std::vector<int64_t>>{{1, 3, 0}, {3, 1, 2}})) << type;
  }
  const at::Tensor rising = at::arange(100, at::kFloat).unsqueeze(0);
  EXPECT_EQ(most_likely_tokens(rising, 65).front().back(), 35);
}

// More branches than the attention kernel takes: as tensor operations.
TEST(PpdCandidates, MayBeMany) {
  const auto model = exit_model({.vocabulary = 40});
  const auto sources = exit_sources(*model);
  PpdDecoding decoding;
  decoding.ppd = {2, 40};
  decoding.batch = 3;
  EXPECT_EQ(run_ppd(*model, sources, decoding).ids, run_plainly(*model, sources, decoding).ids);
}

TEST(PpdSettings, OutOfRangeAreErrors) {
  const auto model = exit_model({});
  const auto sources = exit_sources(*model);
  for (const PpdSettings& ppd : {PpdSettings{1, 3}, PpdSettings{4, 3}, PpdSettings{2, 0}, PpdSettings{2, 25}}) {
    PpdDecoding decoding;
    decoding.ppd = ppd;
    EXPECT_THROW(run_ppd(*model, sources, decoding), std::logic_error);
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
