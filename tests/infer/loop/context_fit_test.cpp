// Prompts near the end of the context: refused, cut at the left, or skipped, and how many tokens follow them.
#include "infer/loop/context_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Context kTen{10, "the model m"};

PromptFit fit(int64_t prompt, int64_t wanted, LongPrompts policy, const Context& context = kTen) {
  return fit_prompt(prompt, wanted, context, policy, "input 3");
}

TEST(ContextFit, WithoutALimitEverythingFits) {
  const PromptFit free = fit(1'000'000, 128, LongPrompts::kError, {});
  EXPECT_EQ(free.room, 128);
  EXPECT_EQ(free.dropped, 0);
}

TEST(ContextFit, NewTokensEndWithTheContext) {
  EXPECT_EQ(fit(6, 4, LongPrompts::kError).room, 4);
  EXPECT_EQ(fit(6, 5, LongPrompts::kError).room, 4);
  EXPECT_EQ(fit(9, 5, LongPrompts::kSkip).room, 1);
}

TEST(ContextFit, APromptThatFillsTheContextIsAnErrorWithTheRemedy) {
  const std::string message = error_of([] { fit(10, 1, LongPrompts::kError); });
  EXPECT_THAT(message, HasSubstr("input 3: the prompt leaves no room"));
  EXPECT_THAT(message, HasSubstr("the model m"));
  EXPECT_THAT(message, HasSubstr("fewer than 10 tokens"));
  EXPECT_THAT(message, HasSubstr("10 tokens"));
  EXPECT_THAT(message, HasSubstr("truncate-left or skip"));
}

TEST(ContextFit, SkippedPromptsGetNothing) {
  EXPECT_TRUE(fit(10, 1, LongPrompts::kSkip).skipped);
  EXPECT_EQ(fit(10, 1, LongPrompts::kSkip).room, 0);
  EXPECT_FALSE(fit(9, 4, LongPrompts::kSkip).skipped);
}

TEST(ContextFit, TruncationMakesRoomForWhatIsWantedUpToHalfTheContext) {
  EXPECT_EQ(fit(25, 3, LongPrompts::kTruncateLeft).dropped, 18);  // the last 7 stay
  EXPECT_EQ(fit(25, 3, LongPrompts::kTruncateLeft).room, 3);
  EXPECT_EQ(fit(8, 3, LongPrompts::kTruncateLeft).dropped, 1);  // it had left room for two
  EXPECT_EQ(fit(7, 3, LongPrompts::kTruncateLeft).dropped, 0);
  EXPECT_EQ(fit(25, 128, LongPrompts::kTruncateLeft).dropped, 20);
  EXPECT_EQ(fit(25, 128, LongPrompts::kTruncateLeft).room, 5);
  EXPECT_EQ(fit(3, 128, LongPrompts::kTruncateLeft).room, 7);
  EXPECT_THAT(error_of([] { fit(2, 1, LongPrompts::kTruncateLeft, {1, "m"}); }), HasSubstr("no room"));
}

model::ModelInfo prompt_info(int64_t positions) {
  auto info = oracle_info(5);
  info.encoder_decoder = false;
  info.max_positions = positions;
  info.name = "small";
  return info;
}

std::vector<GenerationResult> generate(const std::vector<Ids>& prompts, DecodeOptions options, int64_t context = 8) {
  OracleModel target(prompt_info(context), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  return Generator(models, std::move(options)).generate(prompts, 40);
}

TEST(ContextFit, GenerationStopsAtTheContextAndNamesThePromptThatFillsIt) {
  DecodeOptions options;
  options.max_new_tokens = 6;
  const auto results = generate({{2}, {2, 3, 4, 3, 2}}, options);
  EXPECT_EQ(results[0].ids.size(), 6u);
  EXPECT_EQ(results[1].ids.size(), 3u);
  const std::string message = error_of([&] { generate({{2}, {2, 3, 4, 3, 2, 2, 2, 2, 2}}, options); });
  EXPECT_THAT(message, HasSubstr("input 42"));  // first_line 40, counted from 1
  EXPECT_THAT(message, HasSubstr("9 tokens"));
}

TEST(ContextFit, TruncatedPromptsGoOnAsTheirLastTokensDo) {
  DecodeOptions options;
  options.max_new_tokens = 3;
  options.long_prompts = "truncate-left";
  const auto whole = generate({{2, 2, 2, 2, 3, 4, 3, 2, 4, 4}}, options);
  options.long_prompts = "error";
  EXPECT_EQ(whole[0].ids, generate({{4, 3, 2, 4, 4}}, options)[0].ids);
}

TEST(ContextFit, ABosStaysInFrontOfATruncatedPrompt) {
  OracleModel target(prompt_info(6), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  models.generation.emplace();
  models.generation->bos = 0;
  models.generation->eos_ids = {kEos};
  DecodeOptions options;
  options.max_new_tokens = 3;
  options.long_prompts = "truncate-left";
  Generator generator(models, options);
  const auto results =
      generator.generate(std::vector<Ids>{{0, 4, 2, 2, 3, 4}, {0, 3, 4}, {3, 4, 2, 2, 3, 4}, {2, 3, 4}});
  EXPECT_EQ(results[0].ids, results[1].ids);
  EXPECT_EQ(results[2].ids, results[3].ids);
  EXPECT_NE(results[0].ids, results[2].ids);
}

TEST(ContextFit, SkippedPromptsKeepTheirPlaceAndAreReported) {
  DecodeOptions options;
  options.max_new_tokens = 3;
  options.num_samples = 2;
  options.long_prompts = "skip";
  OracleModel target(prompt_info(8), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  Generator generator(models, options);
  const std::vector<Ids> prompts = {Ids(9, 2), {2}, Ids(8, 3), {3}, Ids(20, 4)};
  std::vector<size_t> lengths;
  const auto results = generator.generate(prompts, 0, [&](size_t first, std::span<const GenerationResult> part) {
    EXPECT_EQ(first, lengths.size());
    for (const auto& result : part) lengths.push_back(result.ids.size());
  });
  EXPECT_THAT(lengths, ElementsAre(0, 0, 3, 3, 0, 0, 3, 3, 0, 0));
  EXPECT_EQ(results[0].stats.target_runs, 0);
  std::vector<bool> skipped;
  for (const PromptFit& fit : generator.fit(prompts)) skipped.push_back(fit.skipped);
  EXPECT_THAT(skipped, ElementsAre(true, false, true, false, true));
  EXPECT_EQ(generator.generate(std::vector<Ids>{Ids(9, 2)}).size(), 2u);  // nothing but skipped ones
}

TEST(ContextFit, TheDraftersShorterContextBindsToo) {
  const auto function = random_oracle(5, 6, 1.5, {kEos});
  OracleModel target(prompt_info(0), function);
  auto info = prompt_info(7);
  info.name = "tiny";
  OracleModel drafter(info, function);
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  DecodeOptions options;
  options.method = "assisted";
  options.max_new_tokens = 20;
  Generator generator(models, options);
  EXPECT_EQ(generator.generate(std::vector<Ids>{{2, 3}})[0].ids.size(), 5u);
  EXPECT_THAT(error_of([&] { generator.generate(std::vector<Ids>{Ids(7, 2)}); }), HasSubstr("the drafter tiny"));
}

TEST(ContextFit, AMaximalLengthOfTheModelsSettingsIsAContext) {
  OracleModel target(prompt_info(0), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  models.generation.emplace();
  models.generation->eos_ids = {kEos};
  models.generation->max_length = 6;
  const std::vector<Ids> prompts = {{2, 3}};
  EXPECT_EQ(Generator(models, {}).generate(prompts)[0].ids.size(), 4u);
  EXPECT_EQ(Generator(models, {}).fit(prompts)[0].wanted, 4);
  DecodeOptions options;
  options.max_new_tokens = 9;
  EXPECT_EQ(Generator(models, options).generate(prompts)[0].ids.size(), 9u);
}

TEST(ContextFit, AMaximalLengthThatIsTooShortSaysHowItIsLifted) {
  OracleModel target(prompt_info(20), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  models.generation.emplace();
  models.generation->max_length = 6;
  const auto refusal = [&](const DecodeOptions& options, int64_t prompt) {
    return error_of([&] { Generator(models, options).fit(std::vector<Ids>{Ids(static_cast<size_t>(prompt), 2)}); });
  };
  EXPECT_THAT(refusal({}, 7), HasSubstr("truncate-left or skip; --max-new-tokens lifts this limit"));
  DecodeOptions options;
  options.max_new_tokens = 2;
  EXPECT_EQ(refusal(options, 7), "no error");
  EXPECT_THAT(refusal(options, 20), ::testing::AllOf(HasSubstr("the model small"), Not(HasSubstr("lifts"))));
}

TEST(ContextFit, EncodersInputsAlwaysFit) {
  OracleModel target(oracle_info(5), random_oracle(5, 1, 1.5, {kEos}));
  GenerationModels models;
  models.target = &target;
  DecodeOptions options;
  options.max_new_tokens = 5;
  EXPECT_EQ(Generator(models, options).generate(std::vector<Ids>{Ids(500, 2)})[0].ids.size(), 5u);
}

}  // namespace
}  // namespace draftsmith::infer::testing
