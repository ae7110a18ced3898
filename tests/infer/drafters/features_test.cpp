// Decoding with a features drafter: losslessness in every type, distributions of samples, alpha over given outputs,
// times of steps, and what does not fit.
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/registry.h"
#include "infer/forced/teacher_forcing.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

// A kind of target, and whether the drafter drafts in block mode.
class FeaturesOf : public ::testing::TestWithParam<std::tuple<Kind, bool>> {
 protected:
  const Kind kind_ = std::get<0>(GetParam());
  const bool block_ = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Kinds, FeaturesOf, ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::Bool()),
                         [](const auto& form) {
                           const bool reads_source = std::get<0>(form.param) == Kind::kEncoderDecoder;
                           return std::string(reads_source ? "EncoderDecoder" : "DecoderOnly") +
                                  (std::get<1>(form.param) ? "InBlocks" : "");
                         });

// Of a drafter with its target's head and one with a head of some ids.
TEST_P(FeaturesOf, GreedyOutputsAreTheTargetsInEveryTypeAtEveryWindowAndBatch) {
  TemporaryDirectory root;
  const TandemPair made = features_pair(kind_);
  model::save_model(root / "target", *made.primary);
  const auto target = model::load_model(root / "target", {.pack = false});
  model::FeatureStart start{.block = block_, .markov_rank = block_ ? 4 : 0};
  model::save_with_companion(root / "whole", *model::make_feature_drafter(*target, start), root / "target");
  start.vocabulary = {{0, 1, 2, 3, 5, 6, 8, 13, 21}, 2};
  model::save_with_companion(root / "pruned", *model::make_feature_drafter(*target, start), root / "target");
  auto sources = tandem_sources(kind_);
  for (const Ids& source : tandem_sources(kind_)) sources.push_back(source);  // sixteen
  int64_t accepted = 0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kChar}) {
    const model::LoadOptions load{.dtype = type};
    const auto decoding = model::load_model(root / "target", load);
    GenerationModels models{.target = decoding.get()};
    const auto expected = ids_of(Generator(models, tandem_options("greedy")).generate(sources));
    for (const char* name : {"whole", "pruned"}) {
      const DrafterSpec spec = parse_drafter(root / name);
      EXPECT_EQ(spec.kind, DrafterKind::kFeatures);
      models.drafter = load_drafter(spec, root / "target", load);
      for (int64_t window = 1; window <= 8; ++window) {
        for (const int64_t batch : {1, 4, 16}) {
          const auto results = Generator(models, tandem_options("speculative", window, batch)).generate(sources);
          ASSERT_EQ(ids_of(results), expected) << type << " " << name << " window " << window << " batch " << batch;
          accepted += total(results).accepted;
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_P(FeaturesOf, OtherWindowRulesAndMethodsDraftWithItToo) {
  const TandemPair pair = features_pair(kind_, 24, block_);
  expect_lossless_otherwise(pair, 5);
  EXPECT_THAT(error_of([&] { Generator(pair.models(), tandem_options("tandem")); }), HasSubstr("a Tandem secondary"));
}

TEST_P(FeaturesOf, SamplesAreDistributedAsTheTargets) {
  DecodeOptions options = tandem_options("speculative", 2, 2);
  options.lookup = 1;
  EXPECT_LT(sample_pair(features_pair(kind_, 5, block_), options).deviate, 4.5) << "behind look-up";
  const PairSamples samples = sample_pair(features_pair(kind_, 5, block_));
  EXPECT_LT(samples.deviate, 4.5);
  EXPECT_GT(samples.stats.accepted, 0);
  EXPECT_LT(samples.stats.accepted, samples.stats.drafted * 95 / 100);
}

// As where look-up copied a draft: what one run reads later gives what two give.
TEST_P(FeaturesOf, TokensThatNoDraftFollowedAreReadByTheNextRun) {
  if (kind_ == Kind::kEncoderDecoder) return;
  const TandemPair pair = features_pair(kind_, 24, block_);
  const GenerationModels models = pair.models();
  const auto states = [&](int64_t tokens) {
    const at::Tensor all = at::arange(2 * tokens * pair.primary->config().width, at::kFloat).sin();
    return std::vector(pair.secondary->config().features.layers.size(), all.view({2, tokens, -1}));
  };
  const std::vector<at::Tensor> prompt = states(2), first = states(3), second = states(2);
  std::vector<at::Tensor> last;
  for (const bool at_once : {false, true}) {
    std::vector<Row> rows = {row_before_output({2, 5, 7}, false, 0), row_before_output({3, 9, 4}, false, 0)};
    const std::unique_ptr<Drafter> drafter = models.drafter->make(models.draft_target());
    drafter->prefill({{}, 1, rows, 32, nullptr, nullptr, prompt});
    const Ids both{1, 1};
    const auto draft = [&] { return drafter->next_logits({.rows = rows, .drafted = {}, .active = both}).clone(); };
    const auto commit = [&](const std::vector<at::Tensor>& hidden, const std::vector<Ids>& tokens) {
      const Ids base{rows[0].length(), rows[1].length()};
      for (size_t b : {0, 1}) rows[b].tokens.insert(rows[b].tokens.end(), tokens[b].begin(), tokens[b].end());
      drafter->observe({rows, {.logits = {}, .hidden = hidden}, base});
    };
    if (!at_once) draft();
    commit(first, {{6}, {8, 11, 3}});
    if (!at_once) draft();
    commit(second, {{12, 7}, {5}});
    last.push_back(draft());
  }
  EXPECT_TRUE(at::allclose(last[0], last[1], 1e-5, 1e-5));
}

// Blocks of the unrolled pass: the k-th token of each block has the k-th step's distribution.
TEST_P(FeaturesOf, AlphaOverTextsIsThatOfTheUnrolledPass) {
  const at::NoGradGuard no_grad;
  const TandemPair pair = features_pair(kind_, 24, block_);
  const Ids source{5, 9, 14, 3, 2}, output{4, 19, 3, 8, 8, 21, 2, 1};
  Ids read = kind_ == Kind::kEncoderDecoder ? Ids{0} : source;
  const auto first = std::ssize(read) - 1;
  read.insert(read.end(), output.begin(), output.end() - 1);
  const model::ForwardInput input{.source = {at::tensor(source, at::kLong).view({1, -1}), {5}},
                                  .target = {at::tensor(read, at::kLong).view({1, -1}), {std::ssize(read)}},
                                  .hidden_layers = pair.secondary->config().features.layers};
  const auto states = pair.primary->forward(input);
  const auto steps = pair.secondary->forward_features(
      {input.target, states.layers, states.encoder, input.source.lengths, pair.secondary->config().features.unrolled});
  double overlap = 0;
  for (int64_t t = 0; t < 8; ++t) {
    const auto p = pair.primary->head(states.hidden)[0][first + t].softmax(0);
    at::Tensor rows = pair.secondary->head_rows(steps[static_cast<size_t>(t % 3)])[0][first + t];
    if (block_ && t % 3 > 0) rows = rows + pair.secondary->markov_rows(input.target.tokens[0][first + t]);
    const auto q = pair.secondary->logits_of(rows).softmax(0);
    overlap += at::minimum(p, q).sum().item<double>() / 8;
  }
  const GenerationModels models = pair.models();
  const std::vector<Ids> sources{source}, outputs{output};
  const auto forced = models.drafter->forced_alpha(models.draft_target(), {sources, outputs}, {.temperature = 1}, 0);
  EXPECT_EQ(forced.positions, 8);
  EXPECT_NEAR(forced.alpha, overlap, 1e-7);  // rotations are by other fp32 numbers
}

// In block mode a run has three positions.
TEST_P(FeaturesOf, RunsAreCountedAndTimedByWindow) {
  const TandemPair pair = features_pair(kind_, 24, block_);
  for (const int64_t window : {2, 3, 4}) {
    const DecodeStats stats = total(pair.run(tandem_options("speculative", window, 3)));
    EXPECT_EQ(stats.draft_runs, stats.draft_steps.steps);
    EXPECT_GE(stats.draft_steps.logits, stats.drafted);
    EXPECT_GE(stats.draft_runs * (block_ ? 3 : 1), stats.draft_steps.logits);
    EXPECT_LE(stats.draft_runs, block_ ? stats.verifications * divide_up(window, 3) : stats.draft_steps.logits);
  }
  const GenerationModels models = pair.models();
  const StepCosts costs =
      models.drafter->step_costs(models.draft_target(), random_context(pair.primary->info(), {}), 6);
  EXPECT_EQ(costs.drafts.size(), 5U);
  EXPECT_GT(costs.drafting(5), 0);
}

}  // namespace
}  // namespace draftsmith::infer::testing
