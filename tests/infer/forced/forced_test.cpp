// What models say of finished outputs: decisions computed again are those of decoding, processors included; log
// probabilities of every method; how well each model predicts the outputs, and alpha over them.
#include <cmath>

#include <gtest/gtest.h>

#include "infer/forced/decisions.h"
#include "infer/forced/teacher_forcing.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

const std::vector<Ids> kDecidedSources{{4, 5, 2}, {3}};

model::GenerationConfig settings_with_eos() {
  model::GenerationConfig settings{.eos_ids = {kEos}};
  return settings;
}

DecodeOptions greedy_options() {
  return {.max_new_tokens = 8};
}

// Requires that every token of greedy outputs has the highest logit where it was decided. Returns the number of tokens
// that have it without processors too.
int64_t check_greedy(model::LanguageModel& model, const model::GenerationConfig& settings) {
  const GenerationModels processed{.target = &model, .generation = settings};
  model::GenerationConfig none = settings_with_eos();
  const GenerationModels plain{.target = &model, .generation = none};
  Generator generator(processed, greedy_options());
  const Generator without(plain, greedy_options());
  const auto results = generator.generate(kDecidedSources);
  int64_t same = 0;
  for (size_t line = 0; line < kDecidedSources.size(); ++line) {
    const Ids& ids = results[line].ids;
    for (size_t n = 0; n < ids.size(); ++n) {
      const std::vector<Ids> prefix{{ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)}};
      const ForcedBatch text{std::span(kDecidedSources).subspan(line, 1), prefix};
      EXPECT_EQ(decision_logits(generator, processed, text)[0].argmax().item<int64_t>(), ids[n]) << line << " " << n;
      if (decision_logits(without, plain, text)[0].argmax().item<int64_t>() == ids[n]) ++same;
    }
  }
  return same;
}

// Processors look at the prompt of a decoder-only model.
TEST(Decisions, ProcessPromptsAsDecodingDoes) {
  auto settings = settings_with_eos();
  settings.repetition_penalty = 5;
  settings.no_repeat_ngram_size = 2;
  int64_t same = 0;
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(), model::tiny_gpt2()}) {
    model::TransformerModel model(config, 1);
    model.to(at::kCPU, at::kDouble);
    same += check_greedy(model, settings);
  }
  EXPECT_LT(same, 48) << "the settings change no token";
}

TEST(Decisions, ForbiddenTokensAreInfinitelyFarAndProbabilitiesWarpedAfterProcessing) {
  auto settings = settings_with_eos();
  settings.suppress = {2};
  OracleModel oracle(oracle_info(6), constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1}));
  const GenerationModels models{.target = &oracle, .generation = settings};
  const std::vector<Ids> none(2);
  const at::Tensor logits = decision_logits(Generator(models, greedy_options()), models, {kDecidedSources, none});
  EXPECT_EQ(logits.size(0), 2);
  EXPECT_EQ(logits[1][2].item<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(logits[1].argmax().item<int64_t>(), 3);
  DecodeOptions options = greedy_options();
  options.method = "sample";
  options.temperature = 0.5;
  options.top_k = 2;
  const at::Tensor p = decision_probabilities(Generator(models, options), models, {kDecidedSources, none});
  EXPECT_NEAR(p[0][3].item<double>(), 0.25 * 0.25 / (0.25 * 0.25 + 0.15 * 0.15), 1e-12);
  EXPECT_EQ(p[0][2].item<double>(), 0);
}

// Over all positions: the most likely tokens and cross-entropy of each model, and the overlap of both.
TEST(ForcedAlpha, EqualsSumsOverThePositionsOfTheOutputs) {
  const auto p = random_oracle(5, 1);
  const auto q = random_oracle(5, 2);
  OracleModel target(oracle_info(5), p), drafter(oracle_info(5), q);
  std::vector<Ids> sources, outputs;  // more than a batch
  while (sources.size() <= kForcedRows) {
    sources.insert(sources.end(), {{2, 3}, {}, {4}});
    outputs.insert(outputs.end(), {{2, 4, 1}, {3, 3, 3, 3, 1}, {}});
  }
  for (const Warping& warping : {Warping{1, 0, 1}, Warping{0.7, 3, 1}, Warping{0, 0, 1}}) {
    double alpha = 0, accuracy = 0, cross_entropy = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t t = 0; t < outputs[i].size(); ++t) {
        const std::span before(outputs[i].data(), t);
        const auto a = warped(p(sources[i], before), warping);
        const auto b = warped(q(sources[i], before), warping);
        for (size_t x = 0; x < a.size(); ++x) alpha += std::min(a[x], b[x]) / 48;
        const auto plain = q(sources[i], before);
        const auto best = std::max_element(plain.begin(), plain.end()) - plain.begin();
        accuracy += best == outputs[i][t] ? 1.0 / 48 : 0;
        cross_entropy -= std::log(plain[static_cast<size_t>(outputs[i][t])]) / 48;
      }
    }
    const auto forced = measure_forced_alpha({target, drafter}, {sources, outputs}, warping);
    EXPECT_EQ(forced.positions, 48);
    EXPECT_NEAR(forced.alpha, alpha, 1e-12);
    EXPECT_NEAR(forced.drafter.accuracy, accuracy, 1e-12);
    EXPECT_NEAR(forced.drafter.cross_entropy, cross_entropy, 1e-9);
  }
}

TEST(ForcedAlpha, ATokenThatTheDrafterLacksIsNeverDrafted) {
  OracleModel target(oracle_info(5), constant_oracle({.1, .2, .1, .1, .5}));
  OracleModel drafter(oracle_info(4), constant_oracle({.2, .4, .2, .2}));
  const auto forced =
      measure_forced_alpha({target, drafter}, {std::vector<Ids>{{2}}, std::vector<Ids>{{3, 4}}}, {1, 0, 1});
  EXPECT_NEAR(forced.alpha, .5, 1e-12);
  EXPECT_EQ(forced.agreement, 0);
  EXPECT_EQ(forced.target.accuracy, .5);
}

}  // namespace
}  // namespace draftsmith::infer::testing
