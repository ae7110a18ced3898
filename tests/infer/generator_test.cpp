// What surrounds the loop: combinations that make no sense, vocabularies, order of results, sharing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/acceptance/exact.h"
#include "infer/drafters/model_drafter.h"
#include "infer/windows/fallback.h"
#include "infer/windows/fixed.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

Case some_case() {
  return {random_oracle(5, 1), mixture(random_oracle(5, 1), random_oracle(5, 2), 0.3), 5};
}

GenerationModels models_of(model::LanguageModel& target, model::LanguageModel* drafter = nullptr) {
  GenerationModels models;
  models.target = &target;
  if (drafter != nullptr) models.drafter = as_drafter(*drafter);
  return models;
}

TEST(Generator, ExplainsCombinationsThatMakeNoSense) {
  DecodeOptions options;
  options.method = "speculative";
  options.acceptance = "exact";
  options.temperature = 1;
  const auto run = [&] { decode(some_case(), options, std::vector<Ids>{{2}}); };
  EXPECT_NE(error_of(run).find("compares with the target's most likely token"), std::string::npos);
  options = {};
  options.method = "assisted";
  options.temperature = 0.5;
  EXPECT_NE(error_of(run).find("use the method speculative"), std::string::npos);
  options = {};
  options.window_rule = "fixed";
  EXPECT_NE(error_of(run).find("drafts nothing"), std::string::npos);
}

// A drafter that only proposes tokens.
class Copier : public ModelDrafter {
 public:
  using ModelDrafter::ModelDrafter;
  DrafterTraits traits() const override { return {.name = "copier", .logits = false}; }
};

TEST(Generator, ValidatorKnowsWhatPartsNeedAndGive) {
  OracleModel model(oracle_info(5), random_oracle(5, 1));
  const auto problems_of = [&](const std::string& window, const std::string& acceptance, double temperature) {
    DecodeOptions options;
    options.method = "speculative";
    options.window_rule = window;
    options.acceptance = acceptance;
    Problems problems;
    validate_parts(traits_of(make_parts(options, std::make_unique<Copier>(model, 5))), temperature, problems);
    return problems.list().size();
  };
  EXPECT_EQ(problems_of("fixed", "exact", 0), 0u);
  EXPECT_EQ(problems_of("fixed", "rejection", 0), 0u);
  EXPECT_EQ(problems_of("fixed", "exact", 1), 1u);
  EXPECT_EQ(problems_of("fallback", "rejection", 1), 1u);
  EXPECT_EQ(problems_of("fallback", "exact", 1), 2u);
  EXPECT_EQ(problems_of("dynamic", "exact", 0), 0u);
}

TEST(Generator, UnknownPartsAreNamedWithWhatIsKnown) {
  DecodeOptions options;
  options.method = "assisted";
  options.window_rule = "fixd";
  options.acceptance = "x";
  EXPECT_NE(error_of([&] { make_window_rule(options); }).find("did you mean fixed"), std::string::npos);
  EXPECT_NE(error_of([&] { make_acceptance_rule(options); }).find("exact, rejection, block"), std::string::npos);
}

TEST(Generator, VocabulariesOfDifferentSizesAreAnError) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  OracleModel drafter(oracle_info(6), random_oracle(6, 1));
  DecodeOptions options;
  options.method = "assisted";
  const auto text = error_of([&] { Generator(models_of(target, &drafter), options); });
  EXPECT_NE(text.find("5 ids"), std::string::npos) << text;
  EXPECT_NE(text.find("6 ids"), std::string::npos) << text;
  EXPECT_NE(error_of([&] { Generator(models_of(target), options); }).find("needs a drafter"), std::string::npos);
}

TEST(Generator, IdsOutsideTheVocabularyAreAnError) {
  EXPECT_NE(error_of([] { decode(some_case(), {}, std::vector<Ids>{{2}, {9}}); }).find("input 2"), std::string::npos);
}

TEST(Generator, PaddingIdsAreNeverPutOut) {
  constexpr int64_t kPieces = 4;
  const Pieces tokenizer(kPieces);
  OracleModel target(oracle_info(9), random_oracle(9, 1));
  OracleModel drafter(oracle_info(6), random_oracle(6, 2));  // fewer ids than the target, more than the tokenizer
  const std::vector<Ids> sources = {{2}, {8, 3}, {3, 3, 5}};
  const auto largest = [](const std::vector<GenerationResult>& results) {
    int64_t id = 0;
    for (const auto& result : results) id = std::max(id, *std::max_element(result.ids.begin(), result.ids.end()));
    return id;
  };
  GenerationModels models = models_of(target, &drafter);
  DecodeOptions options;
  options.max_new_tokens = 12;
  EXPECT_GE(largest(Generator(models, options).generate(sources)), kPieces);
  models.target_tokenizer = &tokenizer;
  models.drafter = as_drafter(drafter, &tokenizer);
  const auto greedy = Generator(models, options).generate(sources);
  for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
    options.method = method;
    const auto results = Generator(models, options).generate(sources);
    EXPECT_LT(largest(results), kPieces) << method;
    for (size_t i = 0; i < results.size() && options.method == "assisted"; ++i) {
      EXPECT_EQ(results[i].ids, greedy[i].ids);
    }
  }
}

TEST(Generator, TinyTemperaturesAreGreedyDecoding) {
  Case oracles = some_case();
  oracles.dtype = at::kFloat;
  DecodeOptions options;
  options.max_new_tokens = 8;
  const auto greedy = decode(oracles, options, std::vector<Ids>{{2}})[0].ids;
  for (const char* method : {"sample", "speculative"}) {
    options.method = method;
    options.temperature = 1e-39;
    EXPECT_EQ(decode(oracles, options, std::vector<Ids>{{2}})[0].ids, greedy) << method;
  }
}

TEST(Generator, ResultsAreReportedInOrderAsTheyComplete) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  DecodeOptions options;
  options.batch_size = 2;
  options.num_samples = 2;
  options.max_new_tokens = 6;
  const std::vector<Ids> sources = {{2}, {2, 2, 2}, {3, 3}, {}, {4, 4, 4, 4}};
  std::vector<Ids> reported;
  const auto results = Generator(models_of(target), options)
                           .generate(sources, 0, [&](size_t first, std::span<const GenerationResult> part) {
                             EXPECT_EQ(first, reported.size());
                             for (const auto& result : part) reported.push_back(result.ids);
                           });
  ASSERT_EQ(reported.size(), 10u);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(reported[i], results[i].ids);
}

TEST(Generator, SamplesOfASourceShareItsEncoding) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  DecodeOptions options;
  options.method = "sample";
  options.num_samples = 8;
  options.max_new_tokens = 4;
  Generator(models_of(target), options).generate(std::vector<Ids>{{2}, {3}});
  EXPECT_EQ(target.encodes(), 2);
}

TEST(Generator, DecoderOnlyModelsContinuePrompts) {
  const auto function = random_oracle(5, 6, 1.5, {kEos});
  auto info = oracle_info(5);
  info.encoder_decoder = false;
  OracleModel target(info, function);
  OracleModel drafter(info, mixture(function, random_oracle(5, 7, 1.5, {kEos}), 0.4));
  const std::vector<Ids> prompts = {{2, 3, 4}, {3}, {4, 4, 2, 2, 3}};
  DecodeOptions options;
  options.max_new_tokens = 9;
  options.batch_size = 3;
  const auto greedy = Generator(models_of(target), options).generate(prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Ids all = prompts[i];
    for (const int64_t token : greedy[i].ids) {
      const auto p = function({}, all);
      EXPECT_EQ(token, std::max_element(p.begin(), p.end()) - p.begin());
      all.push_back(token);
    }
  }
  options.method = "assisted";
  const auto assisted = Generator(models_of(target, &drafter), options).generate(prompts);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(assisted[i].ids, greedy[i].ids);
  EXPECT_THROW(Generator(models_of(target), {}).generate(std::vector<Ids>{{}}), UserError);
}

TEST(Generator, DraftedEosEndsTheDraft) {
  const Case oracles{constant_oracle({0, 0.9, 0.1}), constant_oracle({0, 0.9, 0.1}), 3};
  DecodeOptions options;
  options.method = "assisted";
  options.window = 6;
  const auto result = decode(oracles, options, std::vector<Ids>{{2}})[0];
  EXPECT_EQ(result.ids, (Ids{kEos}));
  EXPECT_EQ(result.stats.drafted, 1);
  EXPECT_EQ(result.stats.accepted, 1);
  EXPECT_EQ(result.stats.cut, 1);
}

}  // namespace
}  // namespace draftsmith::infer::testing
