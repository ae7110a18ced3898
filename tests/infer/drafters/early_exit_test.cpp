// Drafting with the target's own first layers: equal to greedy decoding where drafts are verified, to BiLD with the
// same layers as a model of their own, and to plain decoding with all layers.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "model/kinds/exits.h"
#include "tests/support/early_exit_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

class EarlyExitOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EarlyExitOf, ::testing::Values("t5", "llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EarlyExitOf, OutputsVarySomeEndEarlyAndTheFirstLayersAreRightNowAndThen) {
  const auto model = exit_model({.family = GetParam()});
  std::set<int64_t> seen;
  size_t early = 0;
  const auto outputs = tokens_of(run_exit(*model, 0, exit_options("greedy")));
  for (const auto& ids : outputs) {
    early += ids.size() < 14 ? 1 : 0;
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_GE(early, 1U);
  EXPECT_LT(early, outputs.size());
  EXPECT_GE(seen.size(), 5U);
  const DecodeStats stats = total(run_exit(*model, 2, exit_options("assisted")));
  EXPECT_GT(stats.accepted * 5, stats.drafted);
  EXPECT_LT(stats.accepted, stats.drafted);
}

TEST_P(EarlyExitOf, VerifiedDraftsEqualGreedyForAllLayersWindowsAndBatches) {
  const auto model = exit_model({.family = GetParam()});
  DecodeOptions greedy = exit_options("greedy");
  greedy.max_new_tokens = 8;
  const auto expected = tokens_of(run_exit(*model, 0, greedy));
  for (int64_t layer = 1; layer <= kExitLayers; ++layer) {
    for (int64_t window = 1; window <= 8; ++window) {
      for (int64_t batch = 1; batch <= 6; ++batch) {
        DecodeOptions options = exit_options("assisted", batch);
        options.window_rule = "fixed";
        options.window = window;
        options.max_new_tokens = 8;
        ASSERT_EQ(tokens_of(run_exit(*model, layer, options)), expected)
            << "layer " << layer << " window " << window << " batch " << batch;
      }
    }
  }
}

TEST_P(EarlyExitOf, WindowsThatEndByTheDraftersProbabilitiesKeepItGreedy) {
  const auto model = exit_model({.family = GetParam()});
  const auto expected = tokens_of(run_exit(*model, 0, exit_options("greedy")));
  for (const char* window : {"dynamic", "fallback", "entropy"}) {
    for (const char* method : {"assisted", "speculative", "early-exit"}) {
      for (int64_t batch = 1; batch <= 6; ++batch) {
        DecodeOptions options = exit_options(method, batch);
        options.window_rule = window;
        options.confidence = 0.3;
        options.max_entropy = 2;
        options.exit_layer = 2;
        options.acceptance = "exact";
        ASSERT_EQ(tokens_of(run_exit(*model, 2, options)), expected) << method << " " << window;
      }
    }
  }
}

TEST_P(EarlyExitOf, InSinglePrecisionToo) {
  const auto model = exit_model({.family = GetParam(), .type = at::kFloat});
  const auto expected = tokens_of(run_exit(*model, 0, exit_options("greedy")));
  for (int64_t layer = 1; layer <= kExitLayers; ++layer) {
    for (int64_t batch = 1; batch <= 6; batch += 2) {
      EXPECT_EQ(tokens_of(run_exit(*model, layer, exit_options("assisted", batch))), expected);
    }
  }
}

TEST_P(EarlyExitOf, SamplesOfAPromptBeginTogether) {
  const auto model = exit_model({.family = GetParam()});
  DecodeOptions options = exit_options("greedy");
  options.num_samples = 3;
  const auto expected = tokens_of(run_exit(*model, 0, options));
  options = exit_options("assisted", 2);
  options.num_samples = 3;
  EXPECT_EQ(tokens_of(run_exit(*model, 2, options)), expected);
  options = exit_options("speculative", 1);
  options.temperature = 1;
  options.num_samples = 4;
  const auto alone = tokens_of(run_exit(*model, 1, options));
  options.batch_size = 5;
  EXPECT_EQ(tokens_of(run_exit(*model, 1, options)), alone);
}

TEST_P(EarlyExitOf, AllLayersArePlainDecodingWhoseDraftsAreNeverRejected) {
  const auto model = exit_model({.family = GetParam()});
  const auto expected = tokens_of(run_exit(*model, 0, exit_options("greedy")));
  DecodeOptions options = exit_options("early-exit", 3);
  options.exit_layer = kExitLayers;
  for (const double fallback : {0.0, 0.3, 1.1}) {
    options.fallback = fallback;
    const auto results = run_exit(*model, 0, options);
    EXPECT_EQ(tokens_of(results), expected);
    const DecodeStats stats = total(results);
    EXPECT_EQ(stats.accepted, stats.drafted);
    EXPECT_EQ(stats.rollbacks, 0);
    EXPECT_EQ(stats.drafted == 0, fallback > 1);
  }
}

// What BiLD does must not depend on where the small model's weights and caches lie.
void expect_same(const std::vector<GenerationResult>& inside, const std::vector<GenerationResult>& apart,
                 const std::string& where) {
  EXPECT_EQ(tokens_of(inside), tokens_of(apart)) << where;
  for (size_t i = 0; i < inside.size(); ++i) {
    const DecodeStats& a = inside[i].stats;
    const DecodeStats& b = apart[i].stats;
    EXPECT_EQ(a.fallbacks, b.fallbacks) << where;
    EXPECT_EQ(a.rollbacks, b.rollbacks) << where;
    EXPECT_EQ(a.drafted, b.drafted) << where;
    EXPECT_EQ(a.draft_runs, b.draft_runs) << where;
    EXPECT_EQ(a.target_runs, b.target_runs) << where;
    EXPECT_EQ(a.accepted_histogram, b.accepted_histogram) << where;
  }
}

TEST_P(EarlyExitOf, AllLayersOneAfterTheOtherAreAsManyAsOfPlainDecoding) {
  const auto model = exit_model({.family = GetParam()});
  DecodeOptions options = exit_options("assisted");
  options.window_rule = "fixed";
  options.window = 1;
  for (const auto& [ids, stats, log_probabilities, score, error] : run_exit(*model, kExitLayers, options)) {
    EXPECT_EQ(stats.latency_units, kExitLayers * stats.target_tokens);
    EXPECT_GE(stats.latency_units, kExitLayers * stats.emitted);  // an EOS is drafted before the target's own token
    EXPECT_LE(stats.latency_units, kExitLayers * (stats.emitted + 1));
  }
  // G n + N a round.
  for (const auto& [ids, stats, log_probabilities, score, error] : run_exit(*model, 1, options)) {
    EXPECT_EQ(stats.latency_units, stats.target_tokens - stats.target_runs + kExitLayers * stats.target_runs);
  }
}

TEST_P(EarlyExitOf, BildEqualsBildWithTheSameLayersAsAModel) {
  const auto model = exit_model({.family = GetParam()});
  const auto greedy = tokens_of(run_exit(*model, 0, exit_options("greedy")));
  for (const int64_t layer : {1, 3}) {
    const auto small = first_layers(*model, layer);
    GenerationModels apart;
    apart.target = model.get();
    apart.drafter = as_drafter(*small);
    int64_t rollbacks = 0;
    for (const char* rule : {"effective", "literal", "released_code"}) {
      for (const double fallback : {0.0, 0.5}) {
        for (const int64_t batch : {1, 5}) {
          DecodeOptions options = exit_options("early-exit", batch);
          options.exit_layer = layer;
          options.fallback = fallback;
          options.rollback = 1;
          options.rollback_rule = rule;
          const auto inside = run_exit(*model, 0, options);
          options.method = "bild";
          const auto expected = Generator(apart, options).generate(exit_sources(*model));
          expect_same(inside, expected, rule);
          expect_same(run_exit(*model, layer, options), expected, std::string("as a drafter ") + rule);
          rollbacks += total(inside).rollbacks;
        }
      }
    }
    EXPECT_GT(rollbacks, 0);
  }
  DecodeOptions lossy = exit_options("early-exit", 3);
  lossy.rollback = 20;
  EXPECT_NE(tokens_of(run_exit(*model, 0, lossy)), greedy);
}

TEST(EarlyExit, SampledBildEqualsBildWithTheSameLayersAsAModel) {
  const auto model = exit_model({.family = "llama"});
  const auto small = first_layers(*model, 2);
  GenerationModels apart;
  apart.target = model.get();
  apart.drafter = as_drafter(*small);
  DecodeOptions options = exit_options("early-exit", 3);
  options.exit_layer = 2;
  options.temperature = 0.8;
  options.top_p = 0.9;
  options.num_samples = 3;
  options.rollback = 2;
  const auto inside = run_exit(*model, 0, options);
  options.method = "bild";
  expect_same(inside, Generator(apart, options).generate(exit_sources(*model)), "sampled");
}

TEST_P(EarlyExitOf, WithoutVerificationTheSameLayersWriteTheSame) {
  const auto model = exit_model({.family = GetParam()});
  const auto small = first_layers(*model, 2);
  GenerationModels apart;
  apart.target = model.get();
  apart.drafter = as_drafter(*small);
  for (const char* window : {"fixed", "fallback", "dynamic"}) {
    DecodeOptions options = exit_options("early-exit", 3);
    options.exit_layer = 2;
    options.acceptance = "accept_all";
    options.window_rule = window;
    options.confidence = 0.3;
    options.window = 3;
    const auto inside = run_exit(*model, 0, options);
    options.method = "bild";
    expect_same(inside, Generator(apart, options).generate(exit_sources(*model)), window);
  }
}

TEST_P(EarlyExitOf, GenerationSettingsActOnDraftsToo) {
  const auto model = exit_model({.family = GetParam()});
  model::GenerationConfig settings;
  settings.eos_ids = model->info().eos;
  settings.no_repeat_ngram_size = 2;
  settings.repetition_penalty = 1.3;
  settings.suppress = {4, 9};
  GenerationModels models = exit_models(*model, 2);
  models.generation = settings;
  DecodeOptions options = exit_options("greedy");
  options.min_new_tokens = 6;
  const auto expected = tokens_of(Generator(models, options).generate(exit_sources(*model)));
  EXPECT_NE(expected, tokens_of(run_exit(*model, 0, exit_options("greedy"))));
  options = exit_options("assisted", 3);
  options.min_new_tokens = 6;
  EXPECT_EQ(tokens_of(Generator(models, options).generate(exit_sources(*model))), expected);
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
  EXPECT_EQ(tokens_of(turned), tokens_of(plain));
  EXPECT_NE(total(turned).accepted, total(plain).accepted);
  // Without a layer given, early-exit drafts with the first exit.
  DecodeOptions options = exit_options("early-exit");
  // Tokens that the target does not judge go through the first layers only.
  const DecodeStats stats = total(Generator(models, options).generate(exit_sources(*model)));
  EXPECT_EQ(stats.layer_runs, kExitLayers * stats.target_tokens + 2 * stats.unverified);
  options.exit_layer = 2;
  const auto second = tokens_of(Generator(models, options).generate(exit_sources(*model)));
  options.exit_layer.reset();
  EXPECT_EQ(tokens_of(Generator(models, options).generate(exit_sources(*model))), second);
}

}  // namespace
}  // namespace draftsmith::infer::testing
