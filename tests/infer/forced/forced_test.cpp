// Decisions of finished outputs, computed again: they are those of decoding, processors included.
#include "infer/forced/decisions.h"

#include <gtest/gtest.h>

#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

const std::vector<Ids> kDecidedSources{{4, 5, 2}, {3}};

model::GenerationConfig settings_with_eos() {
  model::GenerationConfig settings;
  settings.eos_ids = {kEos};
  return settings;
}

DecodeOptions greedy_options() {
  DecodeOptions options;
  options.max_new_tokens = 8;
  return options;
}

// Requires that every token of greedy outputs has the highest logit where it was decided. Returns the number of tokens
// that have it without processors too.
int64_t check_greedy(model::LanguageModel& model, const model::GenerationConfig& settings) {
  const GenerationModels processed{.target = &model, .generation = settings};
  model::GenerationConfig none = settings_with_eos();
  none.decoder_start = settings.decoder_start;
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

TEST(Decisions, AreThoseOfDecodingWithProcessors) {
  auto settings = settings_with_eos();
  settings.repetition_penalty = 2;
  OracleModel oracle(oracle_info(6), constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1}));
  EXPECT_LT(check_greedy(oracle, settings), 16);  // the penalty changes tokens
}

TEST(Decisions, OfRealModelsStartWhereDecodingStarts) {
  auto settings = settings_with_eos();
  settings.no_repeat_ngram_size = 2;
  settings.decoder_start = 7;  // not the model's own
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(), model::tiny_gpt2()}) {
    model::TransformerModel model(config, 1);
    model.to(at::kCPU, at::kDouble);
    check_greedy(model, settings);
  }
}

// The encoder's processors look at the prompt of a decoder-only model.
TEST(Decisions, ProcessPromptsAsDecodingDoes) {
  auto settings = settings_with_eos();
  settings.encoder_repetition_penalty = 5;
  settings.encoder_no_repeat_ngram_size = 2;
  int64_t same = 0;
  for (const auto& config : {model::tiny_llama(), model::tiny_gpt2()}) {
    model::TransformerModel model(config, 1);
    model.to(at::kCPU, at::kDouble);
    same += check_greedy(model, settings);
  }
  EXPECT_LT(same, 32) << "the settings change no token";
}

TEST(Decisions, ForbiddenTokensAreInfinitelyFar) {
  auto settings = settings_with_eos();
  settings.suppress = {2};
  OracleModel oracle(oracle_info(6), constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1}));
  const GenerationModels models{.target = &oracle, .generation = settings};
  const std::vector<Ids> none(2);
  const at::Tensor logits = decision_logits(Generator(models, greedy_options()), models, {kDecidedSources, none});
  EXPECT_EQ(logits.size(0), 2);
  EXPECT_EQ(logits[1][2].item<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(logits[1].argmax().item<int64_t>(), 3);
}

TEST(Decisions, ProbabilitiesAreWarpedAfterProcessing) {
  auto settings = settings_with_eos();
  settings.suppress = {2};
  OracleModel oracle(oracle_info(6), constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1}));
  const GenerationModels models{.target = &oracle, .generation = settings};
  DecodeOptions options = greedy_options();
  options.method = "sample";
  options.temperature = 0.5;
  options.top_k = 2;
  const std::vector<Ids> none(2);
  const at::Tensor p = decision_probabilities(Generator(models, options), models, {kDecidedSources, none});
  const double sum = 0.25 * 0.25 + 0.15 * 0.15;
  EXPECT_NEAR(p[0][3].item<double>(), 0.25 * 0.25 / sum, 1e-12);
  EXPECT_NEAR(p[0][4].item<double>(), 0.15 * 0.15 / sum, 1e-12);
  EXPECT_EQ(p[0][2].item<double>(), 0);
}

TEST(LogitRounding, IsThatOfTheNumberType) {
  const std::vector<Ids> sources{{4, 5, 2, 9, 11}, {3, 8}};
  const std::vector<Ids> outputs{{7, 9, 13, 4, 5, 6, 8, 21}, {5, 5, 17}};
  const std::vector<int64_t> widths{2, 5, 64};
  for (const auto& config : {model::tiny_t5(), model::tiny_llama()}) {
    model::TransformerModel single(config, 1);
    const double fp32 = logit_rounding(single, {sources, outputs}, widths);
    EXPECT_GT(fp32, 1e-9);
    EXPECT_LT(fp32, 1e-4);
    model::TransformerModel twice(config, 1);
    twice.to(at::kCPU, at::kDouble);
    const double fp64 = logit_rounding(twice, {sources, outputs}, widths);
    EXPECT_GT(fp64, 1e-18);
    EXPECT_LT(fp64, 1e-12);
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
