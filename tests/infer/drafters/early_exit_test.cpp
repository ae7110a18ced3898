// Drafting with the target's own first layers: equal to greedy decoding where drafts are verified, to BiLD with the
// same layers as a model of their own, and to plain decoding with all layers. No layer runs twice for a token.
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "model/models/exits.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

class EarlyExitOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EarlyExitOf, ::testing::Values("t5", "llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

TEST(EarlyExit, LayersOfRowsThatEndInsideAKeptDraftAreCounted) {
  const auto model = exit_model({.family = "llama"});
  DecodeOptions options = exit_options("early-exit", 8);
  options.exit_layer = 1;
  options.acceptance = "accept_all";
  options.window_rule = "fixed";
  options.window = 4;
  options.max_new_tokens = 4;
  for (const auto& [ids, stats, error] : run_exit(*model, 0, options)) {
    // The first token is the target's own; then at most three of layer 1.
    EXPECT_EQ(stats.layer_runs, kExitLayers * stats.target_tokens + stats.drafted - (stats.target_tokens - 1));
  }
}

TEST_P(EarlyExitOf, VerifiedDraftsEqualGreedyForAllLayersWindowsAndBatches) {
  const auto model = exit_model({.family = GetParam()});
  const auto single = exit_model({.family = GetParam(), .type = at::kFloat});
  const auto expected = ids_of(run_exit(*model, 0, exit_options("greedy")));
  const auto expected_single = ids_of(run_exit(*single, 0, exit_options("greedy")));
  DecodeStats sum;
  for (int64_t layer = 1; layer <= kExitLayers; ++layer) {
    for (int64_t batch = 1; batch <= 6; ++batch) {
      DecodeOptions options = exit_options("assisted", batch);
      options.window_rule = "fixed";
      for (const int64_t window : {1, 3, 8}) {
        options.window = window;
        const auto results = run_exit(*model, layer, options);
        ASSERT_EQ(ids_of(results), expected) << "layer " << layer << " window " << window << " batch " << batch;
        const DecodeStats stats = total(results);
        EXPECT_EQ(stats.layer_runs, kExitLayers * stats.target_tokens) << "no layer runs twice for a token";
        if (layer == kExitLayers) {
          EXPECT_EQ(stats.accepted, stats.drafted);
        } else {
          sum += stats;
        }
      }
    }
    EXPECT_EQ(ids_of(run_exit(*single, layer, exit_options("assisted", 3))), expected_single) << layer;
  }
  EXPECT_GT(sum.accepted, 0);
  EXPECT_LT(sum.accepted, sum.drafted);
}

TEST_P(EarlyExitOf, WindowsThatEndByTheDraftersProbabilitiesKeepItGreedy) {
  const auto model = exit_model({.family = GetParam()});
  const auto expected = ids_of(run_exit(*model, 0, exit_options("greedy")));
  for (const char* window : {"dynamic", "fallback", "entropy"}) {
    for (const char* method : {"speculative", "early-exit"}) {
      DecodeOptions options = exit_options(method, 3);
      options.window_rule = window;
      options.confidence = 0.3;
      options.max_entropy = 2;
      options.exit_layer = 2;
      options.acceptance = "exact";
      ASSERT_EQ(ids_of(run_exit(*model, 2, options)), expected) << method << " " << window;
    }
  }
}

// What BiLD does must not depend on where the small model's weights and caches lie.
void expect_same(const std::vector<GenerationResult>& inside, const std::vector<GenerationResult>& apart,
                 const std::string& where) {
  EXPECT_EQ(ids_of(inside), ids_of(apart)) << where;
  for (size_t i = 0; i < inside.size(); ++i) {
    const DecodeStats& a = inside[i].stats;
    const DecodeStats& b = apart[i].stats;
    EXPECT_EQ(a.fallbacks, b.fallbacks) << where;
    EXPECT_EQ(a.rollbacks, b.rollbacks) << where;
    EXPECT_EQ(a.drafted, b.drafted) << where;
    EXPECT_EQ(a.draft_runs, b.draft_runs) << where;
    EXPECT_EQ(a.accepted_histogram, b.accepted_histogram) << where;
  }
}

TEST_P(EarlyExitOf, BildEqualsBildWithTheSameLayersAsAModel) {
  const auto model = exit_model({.family = GetParam()});
  const auto small = first_layers(*model, 2);
  const GenerationModels models{.target = model.get(), .drafter = as_drafter(*small)};
  int64_t rollbacks = 0;
  for (const char* rule : {"effective", "literal"}) {
    for (const double temperature : {0.0, 0.8}) {
      DecodeOptions options = exit_options("early-exit", 5);
      options.exit_layer = 2;
      options.temperature = temperature;
      options.fallback = 0;
      options.rollback = 1;
      options.rollback_rule = rule;
      const auto inside = run_exit(*model, 0, options);
      options.method = "bild";
      const auto expected = Generator(models, options).generate(exit_sources(*model));
      expect_same(inside, expected, rule);
      expect_same(run_exit(*model, 2, options), expected, std::string("as a drafter ") + rule);
      rollbacks += total(inside).rollbacks;
    }
  }
  EXPECT_GT(rollbacks, 0);
}

TEST(EarlyExit, AnExitsOwnNormAndHeadDraftAndNothingElse) {
  const auto model = exit_model({.family = "t5"});
  model::Exits exits({.exits = {{.layer = 2, .head = model::ExitHead::kFull, .own_norm = true}}}, *model, 3);
  const auto plain = run_exit(*model, 2, exit_options("assisted", 3));
  GenerationModels models = exit_models(*model, 2);
  models.exits = &exits;
  // At first such an exit is what the model itself would be there.
  const auto same = Generator(models, exit_options("assisted", 3)).generate(exit_sources(*model));
  EXPECT_EQ(total(same).accepted, total(plain).accepted);
  exits.parameters().at("exit.2.head.weight").mul_(-1);
  const auto turned = Generator(models, exit_options("assisted", 3)).generate(exit_sources(*model));
  EXPECT_EQ(ids_of(turned), ids_of(plain));
  EXPECT_NE(total(turned).accepted, total(plain).accepted);
  // Without a layer given, early-exit drafts with the first exit.
  DecodeOptions options = exit_options("early-exit");
  // Tokens that the target does not judge go through the first layers only.
  const DecodeStats stats = total(Generator(models, options).generate(exit_sources(*model)));
  EXPECT_EQ(stats.layer_runs, kExitLayers * stats.target_tokens + 2 * stats.unverified);
  options.exit_layer = 2;
  const auto second = ids_of(Generator(models, options).generate(exit_sources(*model)));
  options.exit_layer.reset();
  EXPECT_EQ(ids_of(Generator(models, options).generate(exit_sources(*model))), second);
}

}  // namespace
}  // namespace draftsmith::infer::testing
