// Generation settings act at every position, also on drafts and on their verification: processors of logits, lengths,
// and stop strings, which are found in a growing text and end every method at the same token.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>

#include "infer/drafters/model_drafter.h"
#include "infer/engagement.h"
#include "infer/loop/rows.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

model::GenerationConfig plain_settings() {
  model::GenerationConfig settings{.eos_ids = {kEos}};
  return settings;
}

Ids decode_processed(const model::GenerationConfig& settings, DecodeOptions options, const OracleFunction& target,
                     const OracleFunction& drafter, int64_t vocabulary = 6) {
  OracleModel large(oracle_info(vocabulary), target), small(oracle_info(vocabulary), drafter);
  if (!options.max_new_tokens) options.max_new_tokens = 8;
  return Generator({.target = &large, .drafter = as_drafter(small), .generation = settings}, options)
      .generate(std::vector<Ids>{{4, 5, 2}})[0]
      .ids;
}

// Greedy output, after checking that drafting methods give the same.
Ids every_method(const model::GenerationConfig& settings, const OracleFunction& target, DecodeOptions options = {}) {
  const Ids greedy = decode_processed(settings, options, target, target);
  options.method = "assisted";
  for (const int64_t window : {1, 3, 7}) {
    options.window = window;
    EXPECT_EQ(decode_processed(settings, options, target, target), greedy) << window;
    const auto other = mixture(target, random_oracle(6, 5), 0.5);
    EXPECT_EQ(decode_processed(settings, options, target, other), greedy) << window << " with another drafter";
  }
  return greedy;
}

// Prefers 2, then 3, then 4, then 5, then EOS, whatever came before.
const OracleFunction kDescending = constant_oracle({0.01, 0.09, 0.4, 0.25, 0.15, 0.1});

struct Processed {
  model::GenerationConfig settings;
  Ids ids;
  DecodeOptions options = {};
};

void expect_processed(const OracleFunction& target, const std::vector<Processed>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    model::GenerationConfig settings = all[i].settings;
    settings.eos_ids = {kEos};
    EXPECT_EQ(every_method(settings, target, all[i].options), all[i].ids) << i;
  }
}

TEST(Processors, RepetitionsBadSuppressedAndForcedTokens) {
  const model::GenerationConfig suppressed{.forced_eos = {kEos}, .suppress = {2}};
  model::GenerationConfig forced = suppressed;
  forced.forced_bos = 5;
  expect_processed(
      kDescending,
      {{{.no_repeat_ngram_size = 1}, {2, 3, 4, 5, 1}},
       {{.no_repeat_ngram_size = 2}, {2, 2, 3, 2, 4, 2, 5, 2}},
       {{.repetition_penalty = 2}, {2, 3, 2, 2, 2, 2, 2, 2}},  // log p times 2: .4 becomes .16, .25 becomes .0625
       {{.bad_words = {{2, 2}, {3, 2, 3}, {kEos}}}, {2, 3, 2, 4, 2, 3, 2, 4}},
       {{.bad_words = {{2, 2, 2}}}, {2, 2, 3, 2, 2, 3, 2, 2}},  // the start token 0 and new tokens are the context
       {{.bad_words = {{0, 2}}}, {3, 2, 2, 2, 2, 2, 2, 2}},
       {suppressed, {3, 3, 3, 3, 3, 3, 3, 1}},
       {forced, {5, 3, 3, 3, 3, 3, 3, 1}}});
}

// Options stand before the model's settings, and 0 or 1 turns them off.
TEST(SamplingSettings, AreTheModelsWhereOptionsAreSilent) {
  const auto sampled = [](const model::GenerationConfig& settings, DecodeOptions options = {}) {
    std::set<Ids> found;
    options.method = "sample";
    for (options.seed = 0; options.seed < 8; ++options.seed) {
      found.insert(decode_processed(settings, options, kDescending, kDescending));
    }
    return found.size();
  };
  EXPECT_GT(sampled({}), 4u);  // of the 8 seeds
  EXPECT_EQ(sampled({.temperature = 1e-3}), 1u);
  EXPECT_EQ(sampled({.top_k = 1}), 1u);
  EXPECT_EQ(sampled({.top_p = 0.1}), 1u);
  EXPECT_EQ(sampled({.min_p = 1.0}), 1u);
  EXPECT_GT(sampled({.temperature = 1e-3}, {.temperature = 1}), 4u);
  EXPECT_GT(sampled({.top_k = 1}, {.top_k = 0}), 4u);
  EXPECT_GT(sampled({.top_p = 0.1}, {.top_p = 1}), 4u);
  EXPECT_GT(sampled({.min_p = 1.0}, {.min_p = 0}), 4u);
}

TEST(Processors, MinimumLengths) {
  expect_processed(constant_oracle({0.01, 0.5, 0.3, 0.19, 0, 0}),
                   {{{.min_length = 4}, {2, 2, 2, 1}},  // the start token counts
                    {{.min_new_tokens = 2}, {2, 2, 1}},
                    {{.min_new_tokens = 2}, {2, 2, 2, 2, 2, 1}, {.min_new_tokens = 5}},
                    {{.min_length = 6, .min_new_tokens = 2}, {2, 2, 1}}});  // replaced by the minimum of new tokens
}

TEST(Processors, OptionsReplaceTheModelsSettings) {
  auto settings = plain_settings();
  settings.repetition_penalty = 5;
  settings.no_repeat_ngram_size = 1;
  DecodeOptions options{.repetition_penalty = 2, .no_repeat_ngram_size = 0};
  EXPECT_EQ(every_method(settings, kDescending, options), (Ids{2, 3, 2, 2, 2, 2, 2, 2}));
  options.repetition_penalty = 1;
  options.no_repeat_ngram_size = 2;
  EXPECT_EQ(every_method(settings, kDescending, options), (Ids{2, 2, 3, 2, 4, 2, 5, 2}));
}

TEST(Processors, SamplingKeepsTheProcessedDistribution) {
  auto settings = plain_settings();
  settings.no_repeat_ngram_size = 1;
  OracleModel target(oracle_info(5), random_oracle(5, 31)), drafter(oracle_info(5), random_oracle(5, 32));
  DecodeOptions options{.method = "speculative", .window = 3, .max_new_tokens = 3, .num_samples = 4096};
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

// With byte fallback, a byte's text is certain only with the token behind it.
TEST(StopStrings, OfBytesEndWithTheirLastByteAndSpecialTokensAreSome) {
  const auto tokenizer = data::load_json_tokenizer(data::byte_fallback_json({"▁", "a"}, {}));
  const auto ids = [&](const std::string& text) {
    const auto found = tokenizer->encode(text);
    return Ids(found.begin(), found.end());
  };
  for (const std::string before : {"", "a"}) {
    const Ids line = ids(before + "\n");
    EXPECT_EQ(stop_of(*tokenizer, {"\n"}, ids(before + "\na")), std::ssize(line)) << before;
    EXPECT_EQ(stop_of(*tokenizer, {"\na"}, ids(before + "\na")), std::ssize(line) + 1) << before;
  }
  EXPECT_EQ(stop_of(*tokenizer, {"é"}, ids("aéa")), std::ssize(ids("aé")));
  StopStringMatcher seen(std::make_shared<std::vector<std::string>>(1, "\n"), *tokenizer);
  for (const int64_t id : ids("a\n")) seen.add(id);  // of a prompt
  for (const int64_t id : ids("é")) EXPECT_FALSE(seen.add(id)) << "what was searched is not searched again";
  EXPECT_EQ(stop_of(*tokenizer, {"</s>"}, {tokenizer->encode("a")[0], tokenizer->eos()}), 2);
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
    OraclePair pair({target, mixture(target, random_oracle(6, 5), 0.3), 6, at::kDouble, encoder_decoder});
    const std::vector<Ids> sources = {{2}, {3, 4}, {4, 4, 2}, {5, 2, 2, 3}};
    for (const std::string stop : {"a", "ab", "cd", "ddc", "bdb"}) {
      DecodeOptions options{.stop_strings = {stop, "caa"}, .max_new_tokens = 12, .batch_size = 4};
      const auto run = [&] {
        return Generator({.target = &pair.target,
                          .drafter = as_drafter(pair.drafter, &letters),
                          .generation = {},
                          .target_tokenizer = &letters},
                         options)
            .generate(sources);
      };
      const auto greedy = run();
      for (const auto& result : greedy) stopped += result.ids.size() < 12 ? 1 : 0;
      for (const char* method : {"speculative", "assisted", "bild"}) {
        options.method = method;
        options.temperature = 0;
        options.window = 4;
        options.acceptance = "exact";  // bild's windows, verified without loss
        EXPECT_EQ(ids_of(run()), ids_of(greedy)) << method << stop;
      }
    }
  }
  EXPECT_GE(stopped, 12U);
}

TEST(StopStrings, InsideADraftTheyLeaveTheLargeModelUnengaged) {
  const Letters letters(6);
  const OracleFunction small = [](std::span<const int64_t>, std::span<const int64_t> prefix) {
    return prefix.size() < 4 ? std::vector{0., 0., .9, .05, .03, .02} : std::vector{0., 0., .3, .3, .2, .2};
  };
  OraclePair pair({small, small, 6});
  GenerationModels models = pair.models();
  models.target_tokenizer = &letters;
  models.generation = model::GenerationConfig{.stop_strings = {"aaa"}};
  const EngagedOutputs outputs = engage(models, {EngagementPolicy::kFallback, .5, 8, 1}, std::vector<Ids>{{2}});
  EXPECT_THAT(outputs.ids, ::testing::ElementsAre(Ids{2, 2, 2}));
  EXPECT_EQ(outputs.engaged, 0);
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
    const auto greedy = ids_of(Generator(models, options).generate(exit_sources(*model)));
    EXPECT_LE(greedy[line].size(), 3U);
    for (const char* method : {"ppd", "calm"}) {
      options.method = method;
      options.exit_threshold = 1;  // of calm: no token leaves early
      EXPECT_EQ(ids_of(Generator(models, options).generate(exit_sources(*model))), greedy) << family << method;
    }
  }
}

TEST(StopStrings, MayBeginInThePrompt) {
  const Letters letters(6);
  OracleModel model(oracle_info(6, at::kDouble, false), constant_oracle({0, 0, 0.6, 0.4, 0, 0}));  // writes "aaaa"
  DecodeOptions options{.stop_strings = {"bca"}, .max_new_tokens = 4};
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
  DecodeOptions options{.stop_strings = {"a"}};
  EXPECT_THAT(error_of([&] { Generator({.target = &model, .generation = {}}, options); }),
              ::testing::HasSubstr("tokenizer"));
  options.stop_strings = {"a", ""};
  EXPECT_THAT(error_of([&] { Generator({.target = &model, .generation = {}}, options); }),
              ::testing::HasSubstr("empty"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
