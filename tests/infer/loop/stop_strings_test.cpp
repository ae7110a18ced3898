// Stop strings: where they are found in a growing text, and that every method ends at the same token.
#include "infer/loop/stop_strings.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"

namespace draftsmith::infer::testing {
namespace {

// Returns the number of tokens up to the first that completes a stop string; -1: none does.
int64_t stop_of(const data::Tokenizer& tokenizer, const std::vector<std::string>& stops, const Ids& tokens) {
  StopStringMatcher matcher(std::make_shared<const std::vector<std::string>>(stops), tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (matcher.add(tokens[i])) return static_cast<int64_t>(i) + 1;
  }
  return -1;
}

TEST(StopStrings, AreFoundAcrossTokensAndOnlyWhereTheTextGrows) {
  const Letters letters(8);
  EXPECT_EQ(stop_of(letters, {"abc"}, {2, 3, 4, 5}), 3);
  EXPECT_EQ(stop_of(letters, {"abc"}, {2, 2, 3, 1, 4}), 5) << "a token without text between";
  EXPECT_EQ(stop_of(letters, {"abc"}, {2, 3, 3, 4}), -1);
  EXPECT_EQ(stop_of(letters, {"cc", "b"}, {2, 4, 4, 3}), 3);
  EXPECT_EQ(stop_of(letters, {"aab"}, {2, 2, 2, 3}), 4) << "an overlap with itself";
  EXPECT_EQ(stop_of(letters, {"a"}, {99, -5, 2}), 3) << "ids without text";
}

TEST(StopStrings, MayEndInsideATokenAndNeverInsideACharacter) {
  // byte_level_json's ids are bytes; the merges "h e", and those of two characters, come after.
  const auto tokenizer = data::load_json_tokenizer(data::byte_level_json({"h e", "Ã ©", "æ Ĺ"}));
  const auto ids = [&](const std::string& text) {
    const auto found = tokenizer->encode(text);
    return Ids(found.begin(), found.end());
  };
  EXPECT_EQ(stop_of(*tokenizer, {"h"}, ids("xhe")), 2) << "the token 'he' holds the stop string";
  const Ids day = ids("日本");  // six bytes in fewer tokens, none of which is a whole character
  const Ids first = ids("日");
  EXPECT_EQ(stop_of(*tokenizer, {"日"}, day), std::ssize(first));
  EXPECT_EQ(stop_of(*tokenizer, {"本"}, day), std::ssize(day));
  EXPECT_EQ(stop_of(*tokenizer, {"\xEF\xBF\xBD"}, day), -1) << "no replacement character on the way";
}

TEST(StopStrings, EveryMethodEndsAtTheTokenWherePlainDecodingEnds) {
  const Letters letters(6);
  const OracleFunction target = random_oracle(6, 21, 1.5, {kEos});
  size_t stopped = 0;
  for (const bool encoder_decoder : {true, false}) {
    auto info = oracle_info(6);
    info.encoder_decoder = encoder_decoder;
    OracleModel large(info, target);
    OracleModel small(info, mixture(target, random_oracle(6, 5), 0.3));
    const std::vector<Ids> sources = {{2}, {3, 4}, {4, 4, 2}, {5, 2, 2, 3}};
    for (const std::string stop : {"a", "ab", "cd", "ddc", "bdb"}) {
      DecodeOptions options;
      options.max_new_tokens = 12;
      options.batch_size = 4;
      options.stop_strings = {stop, "caa"};
      const auto run = [&] {
        return Generator({.target = &large,
                          .drafter = as_drafter(small, &letters),
                          .generation = {},
                          .target_tokenizer = &letters},
                         options)
            .generate(sources);
      };
      const auto greedy = run();
      for (const auto& result : greedy) stopped += result.ids.size() < 12 ? 1 : 0;
      for (const char* method : {"speculative", "assisted", "bild"}) {
        for (const int64_t window : {1, 4, 9}) {
          options.method = method;
          options.temperature = 0;
          options.window = window;
          options.acceptance = "exact";  // bild's windows, verified without loss
          const auto results = run();
          for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(results[i].ids, greedy[i].ids) << method << stop;
        }
      }
    }
  }
  EXPECT_GE(stopped, 12U);
}

TEST(StopStrings, MethodsInsideTheModelEndThereToo) {
  const Letters letters(kExitVocabulary);
  for (const char* family : {"t5", "llama"}) {
    const auto model = exit_model({.family = family});
    DecodeOptions options = exit_options("greedy", 3);
    GenerationModels models = exit_models(*model);
    models.target_tokenizer = &letters;
    const auto whole = Generator(models, options).generate(exit_sources(*model));
    const auto line = static_cast<size_t>(
        std::ranges::find_if(whole, [](const auto& result) { return result.ids.size() >= 4; }) - whole.begin());
    ASSERT_LT(line, whole.size());
    const Ids& ids = whole[line].ids;  // stops at its third token at the latest
    options.stop_strings = {
        letters.decode(std::vector<int32_t>{static_cast<int32_t>(ids[1]), static_cast<int32_t>(ids[2])})};
    ASSERT_FALSE(options.stop_strings[0].empty());
    const auto greedy = tokens_of(Generator(models, options).generate(exit_sources(*model)));
    EXPECT_LE(greedy[line].size(), 3U);
    for (const char* method : {"ppd", "calm"}) {
      options.method = method;
      options.exit_threshold = 1;  // of calm: no token leaves early
      EXPECT_EQ(tokens_of(Generator(models, options).generate(exit_sources(*model))), greedy) << family << method;
    }
  }
}

TEST(StopStrings, MayBeginInThePrompt) {
  const Letters letters(6);
  auto info = oracle_info(6);
  info.encoder_decoder = false;
  OracleModel model(info, constant_oracle({0, 0, 0.6, 0.4, 0, 0}));  // writes "aaaa"
  DecodeOptions options;
  options.max_new_tokens = 4;
  options.stop_strings = {"bca"};
  const auto run = [&](const Ids& prompt) {
    return Generator({.target = &model, .generation = {}, .target_tokenizer = &letters}, options)
        .generate(std::vector<Ids>{prompt})[0]
        .ids;
  };
  EXPECT_EQ(run({3, 4}), (Ids{2}));
  EXPECT_EQ(run({3, 4, 2}), (Ids{2, 2, 2, 2})) << "it ended before";
}

TEST(StopStrings, NeedATokenizerAndText) {
  OracleModel model(oracle_info(6), random_oracle(6, 1));
  DecodeOptions options;
  options.stop_strings = {"a"};
  EXPECT_THAT(error_of([&] { Generator({.target = &model, .generation = {}}, options); }),
              ::testing::HasSubstr("tokenizer"));
  options.stop_strings = {"a", ""};
  EXPECT_THAT(error_of([&] { Generator({.target = &model, .generation = {}}, options); }),
              ::testing::HasSubstr("empty"));
}

TEST(StopStrings, OfTheModelsSettingsAreReplacedByOptions) {
  const Letters letters(6);
  OracleModel model(oracle_info(6), constant_oracle({0, 0, 0.6, 0.4, 0, 0}));
  model::GenerationConfig settings;
  settings.eos_ids = {kEos};
  settings.stop_strings = {"aa"};
  DecodeOptions options;
  options.max_new_tokens = 5;
  const auto length = [&] {
    return Generator({.target = &model, .generation = settings, .target_tokenizer = &letters}, options)
        .generate(std::vector<Ids>{{2}})[0]
        .ids.size();
  };
  EXPECT_EQ(length(), 2U);
  options.stop_strings = {"aaaa"};
  EXPECT_EQ(length(), 4U);
}

}  // namespace
}  // namespace draftsmith::infer::testing
