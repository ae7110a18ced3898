// Generation settings act at every position: also on drafts and on their verification.
#include <algorithm>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

model::GenerationConfig plain_settings() {
  model::GenerationConfig settings;
  settings.eos_ids = {kEos};
  return settings;
}

Ids decode_processed(const model::GenerationConfig& settings, DecodeOptions options, const OracleFunction& target,
                     const OracleFunction& drafter, int64_t vocabulary = 6) {
  OracleModel large(oracle_info(vocabulary), target);
  OracleModel small(oracle_info(vocabulary), drafter);
  if (!options.max_new_tokens) options.max_new_tokens = 8;
  return Generator({.target = &large, .drafter = as_drafter(small), .generation = settings}, options)
      .generate(std::vector<Ids>{{4, 5, 2}})[0]
      .ids;
}

// Greedy output, after checking that drafting methods give the same.
Ids every_method(const model::GenerationConfig& settings, const OracleFunction& target, DecodeOptions options = {}) {
  const Ids greedy = decode_processed(settings, options, target, target);
  for (const char* method : {"speculative", "assisted"}) {
    for (const int64_t window : {1, 3, 7}) {
      options.method = method;
      options.window = window;
      options.temperature = 0;
      EXPECT_EQ(decode_processed(settings, options, target, target), greedy) << method;
      const auto other = mixture(target, random_oracle(6, 5), 0.5);
      EXPECT_EQ(decode_processed(settings, options, target, other), greedy) << method << " with another drafter";
    }
  }
  return greedy;
}

// Prefers 2, then 3, then 4, then 5, then EOS, whatever came before.
const OracleFunction kDescending = constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1});

TEST(Processors, NoRepeatNgram) {
  auto settings = plain_settings();
  settings.no_repeat_ngram_size = 1;
  EXPECT_EQ(every_method(settings, kDescending), (Ids{2, 3, 4, 5, 1}));
  settings.no_repeat_ngram_size = 2;
  EXPECT_EQ(every_method(settings, kDescending), (Ids{2, 2, 3, 2, 4, 2, 5, 2}));
}

TEST(Processors, RepetitionPenaltyCountsDraftedTokens) {
  auto settings = plain_settings();
  settings.repetition_penalty = 2;  // log p times 2: .4 becomes .16, .25 becomes .0625
  EXPECT_EQ(every_method(settings, kDescending), (Ids{2, 3, 2, 2, 2, 2, 2, 2}));
}

TEST(Processors, EncoderRepetitionRules) {
  auto settings = plain_settings();
  settings.encoder_no_repeat_ngram_size = 1;  // the source has 4, 5 and 2
  EXPECT_EQ(every_method(settings, kDescending), (Ids(8, 3)));
  settings.encoder_no_repeat_ngram_size = 2;  // nothing to complete: 2 ends the source
  EXPECT_EQ(every_method(settings, kDescending), (Ids(8, 2)));
  settings = plain_settings();
  settings.encoder_repetition_penalty = 0.5;  // disfavours the source: .4 becomes .16, below 3's .25
  EXPECT_EQ(every_method(settings, kDescending), (Ids(8, 3)));
}

TEST(Processors, BadWords) {
  auto settings = plain_settings();
  settings.bad_words = {{2, 2}, {3, 2, 3}, {kEos}};
  EXPECT_EQ(every_method(settings, kDescending), (Ids{2, 3, 2, 4, 2, 3, 2, 4}));
}

TEST(Processors, SuppressedAndForcedTokens) {
  auto settings = plain_settings();
  settings.suppress = {2};
  settings.begin_suppress = {3};
  settings.forced_eos = {kEos};
  EXPECT_EQ(every_method(settings, kDescending), (Ids{4, 3, 3, 3, 3, 3, 3, 1}));
  settings.forced_bos = 5;  // begin_suppress then acts on the second token
  EXPECT_EQ(every_method(settings, kDescending), (Ids{5, 4, 3, 3, 3, 3, 3, 1}));
}

TEST(Processors, MinimumLengths) {
  const auto ending = constant_oracle({0.01, 0.5, 0.3, 0.19, 0, 0});
  auto settings = plain_settings();
  settings.min_length = 4;  // the start token counts
  EXPECT_EQ(every_method(settings, ending), (Ids{2, 2, 2, 1}));
  settings.min_length = 0;
  settings.min_new_tokens = 2;
  EXPECT_EQ(every_method(settings, ending), (Ids{2, 2, 1}));
  DecodeOptions options;
  options.min_new_tokens = 5;
  EXPECT_EQ(every_method(settings, ending, options), (Ids{2, 2, 2, 2, 2, 1}));
}

TEST(Processors, MinimumOfNewTokensReplacesTheMinimumLength) {
  const auto ending = constant_oracle({0.01, 0.5, 0.3, 0.19, 0, 0});
  auto settings = plain_settings();
  settings.min_length = 6;
  settings.min_new_tokens = 2;
  EXPECT_EQ(every_method(settings, ending), (Ids{2, 2, 1}));
  settings.min_new_tokens = 0;
  EXPECT_EQ(every_method(settings, ending), (Ids{1}));
}

TEST(Processors, OptionsReplaceTheModelsSettings) {
  auto settings = plain_settings();
  settings.repetition_penalty = 5;
  settings.no_repeat_ngram_size = 1;
  DecodeOptions options;
  options.repetition_penalty = 2;
  options.no_repeat_ngram_size = 0;
  EXPECT_EQ(every_method(settings, kDescending, options), (Ids{2, 3, 2, 2, 2, 2, 2, 2}));
  options.repetition_penalty = 1;
  options.no_repeat_ngram_size = 2;
  EXPECT_EQ(every_method(settings, kDescending, options), (Ids{2, 2, 3, 2, 4, 2, 5, 2}));
}

TEST(Processors, APromptIsTheSourceOfDecoderOnlyModels) {
  const auto run = [](const model::GenerationConfig& settings, const char* method) {
    auto info = oracle_info(6);
    info.encoder_decoder = false;
    OracleModel target(info, kDescending);
    DecodeOptions options;
    options.method = method;
    options.temperature = 0;
    options.max_new_tokens = 4;
    return Generator({.target = &target, .drafter = as_drafter(target), .generation = settings}, options)
        .generate(std::vector<Ids>{{4, 5, 2}})[0]
        .ids;
  };
  for (const char* method : {"greedy", "assisted"}) {
    auto settings = plain_settings();
    settings.encoder_no_repeat_ngram_size = 1;  // of the prompt 4, 5, 2 alone, not of new tokens
    EXPECT_EQ(run(settings, method), (Ids(4, 3))) << method;
    settings = plain_settings();
    settings.encoder_repetition_penalty = 0.5;
    EXPECT_EQ(run(settings, method), (Ids(4, 3))) << method;
  }
}

TEST(Processors, WordsLongerThanTheContextAreNotBanned) {
  auto settings = plain_settings();
  settings.bad_words = {{2, 2, 2}};
  // The start token 0 and new tokens are the context: {2, 2} stands before the third token at the earliest.
  EXPECT_EQ(every_method(settings, kDescending), (Ids{2, 2, 3, 2, 2, 3, 2, 2}));
  settings.bad_words = {{0, 2}};
  EXPECT_EQ(every_method(settings, kDescending), (Ids{3, 2, 2, 2, 2, 2, 2, 2}));
}

TEST(Processors, SamplingKeepsTheProcessedDistribution) {
  auto settings = plain_settings();
  settings.no_repeat_ngram_size = 1;
  OracleModel target(oracle_info(5), random_oracle(5, 31));
  OracleModel drafter(oracle_info(5), random_oracle(5, 32));
  DecodeOptions options;
  options.method = "speculative";
  options.window = 3;
  options.max_new_tokens = 3;
  options.num_samples = 4096;
  const auto results = Generator({.target = &target, .drafter = as_drafter(drafter), .generation = settings}, options)
                           .generate(std::vector<Ids>{{2}});
  // The same processor written down as an oracle: tokens that came before (start token 0 counts) have no probability.
  const OracleFunction processed = [](std::span<const int64_t> source, std::span<const int64_t> prefix) {
    auto p = random_oracle(5, 31)(source, prefix);
    p[0] = 0;
    for (const int64_t token : prefix) p[static_cast<size_t>(token)] = 0;
    double sum = 0;
    for (const double value : p) sum += value;
    for (double& value : p) value /= sum;
    return p;
  };
  EXPECT_LT(chi_square_deviate(enumerate(processed, {2}, {}, 3), count_sequences(results)), 4.75);
}

TEST(Processors, UnsupportedSettingsAreAnError) {
  auto settings = plain_settings();
  settings.unsupported = {{"num_beam_groups", "4"}};
  EXPECT_THROW(decode_processed(settings, {}, kDescending, kDescending), UserError);
}

TEST(Processors, LengthsComeFromTheSettingsWhenNoneAreGiven) {
  OracleModel target(oracle_info(6), kDescending);
  auto settings = plain_settings();
  const auto length = [&] {
    return Generator({.target = &target, .drafter = nullptr, .generation = settings}, {})
        .generate(std::vector<Ids>{{2}})[0]
        .ids.size();
  };
  EXPECT_EQ(length(), 128u);
  settings.max_length = 20;  // the start token counts
  EXPECT_EQ(length(), 19u);
  settings.max_new_tokens = 7;
  EXPECT_EQ(length(), 7u);
}

}  // namespace
}  // namespace draftsmith::infer::testing
