// Decoding with a Tandem secondary: identities with the primary, losslessness, caches that equal recomputation, and
// what does not fit together.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/parts.h"
#include "infer/windows/oracle.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::HasSubstr;

TEST(Tandem, PrimariesOutputsVaryAndSomeEndEarly) {
  for (const Kind kind : kKinds) {
    std::set<int64_t> seen;
    size_t early = 0;
    const auto outputs = ids_of(identity_pair(kind).run(tandem_options("greedy")));
    for (const Ids& ids : outputs) {
      early += ids.size() < 18 ? 1 : 0;
      seen.insert(ids.begin(), ids.end());
    }
    EXPECT_GE(early, 1U);
    EXPECT_LT(early, outputs.size());
    EXPECT_GE(seen.size(), 5U);
  }
}

TEST(Tandem, IdentitySecondaryIsAlwaysAccepted) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind);
    const auto expected = ids_of(pair.run(tandem_options("greedy")));
    for (const int64_t window : {1, 2, 3, 7}) {
      const auto results = pair.run(tandem_options("tandem-speed", window, 3));
      EXPECT_EQ(ids_of(results), expected);
      for (const auto& [ids, stats, log_probabilities, score, error] : results) {
        EXPECT_EQ(stats.accepted, stats.drafted);
        EXPECT_EQ(stats.target_runs, divide_up(std::ssize(ids), window + 1)) << "window " << window;
      }
    }
  }
}

TEST(Tandem, LengthLimitsOfOneTokenAndInsideABlock) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind);
    for (int64_t limit = 1; limit <= 6; ++limit) {
      DecodeOptions options = tandem_options("greedy");
      options.max_new_tokens = limit;
      const auto expected = ids_of(pair.run(options));
      for (const char* method : {"tandem", "tandem-speed"}) {
        for (const bool free_token : {true, false}) {
          options = tandem_options(method, 3, 4);
          options.max_new_tokens = limit;
          options.free_token = free_token;
          EXPECT_EQ(ids_of(pair.run(options)), expected) << method << " limit " << limit;
        }
      }
    }
  }
}

TEST(Tandem, SpeedEqualsGreedyWithEverySecondary) {
  for (const Kind kind : kKinds) {
    std::vector<TandemPair> pairs;
    pairs.push_back(identity_pair(kind, kNoise));
    pairs.push_back(random_pair(kind));
    DecodeOptions greedy = tandem_options("greedy");
    greedy.max_new_tokens = 11;
    const auto expected = ids_of(pairs[0].run(greedy));
    for (const TandemPair& pair : pairs) {
      for (int64_t window = 1; window <= 8; ++window) {
        for (int64_t batch = 1; batch <= 6; ++batch) {
          DecodeOptions options = tandem_options("tandem-speed", window, batch);
          options.max_new_tokens = 11;
          ASSERT_EQ(ids_of(pair.run(options)), expected) << "window " << window << " batch " << batch;
        }
      }
    }
    const DecodeStats noisy = total(pairs[0].run(tandem_options("tandem-speed", 4, 3)));
    EXPECT_GT(noisy.accepted, noisy.drafted / 5);
    EXPECT_LT(noisy.accepted, noisy.drafted);
  }
}

TEST(Tandem, OtherMethodsAndWindowsDraftWithItToo) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind, kNoise);
    const auto expected = ids_of(pair.run(tandem_options("greedy")));
    for (const char* window : {"fixed", "dynamic", "fallback"}) {
      for (const char* method : {"tandem-speed", "assisted"}) {
        DecodeOptions options = tandem_options(method, 3, 3);
        options.window_rule = window;
        options.confidence = 0.3;
        EXPECT_EQ(ids_of(pair.run(options)), expected) << method << " " << window;
      }
    }
    DecodeOptions literal = tandem_options("bild", 3, 3);
    literal.rollback = 0;
    literal.rollback_rule = "literal";
    literal.verify_end = true;
    EXPECT_EQ(ids_of(pair.run(literal)), expected);
    // Rows whose next token the target writes after a rollback, and rows that end unverified.
    DecodeOptions released = tandem_options("bild", 3, 3);
    released.rollback = 1;
    released.rollback_rule = "released_code";
    const auto together = ids_of(pair.run(released));
    released.batch_size = 1;
    EXPECT_EQ(together, ids_of(pair.run(released)));
  }
}

TEST(Tandem, GenerationSettingsActOnFreeTokensAndDraftsAlike) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind);
    GenerationModels models = pair.models();
    model::GenerationConfig settings;
    settings.eos_ids = pair.primary->info().eos;
    settings.no_repeat_ngram_size = 2;
    settings.repetition_penalty = 1.3;
    settings.suppress = {4, 9};
    models.generation = settings;
    DecodeOptions options = tandem_options("greedy");
    options.min_new_tokens = 6;
    const auto expected = ids_of(Generator(models, options).generate(tandem_sources(kind)));
    EXPECT_NE(expected, ids_of(pair.run(tandem_options("greedy"))));
    for (const char* method : {"tandem", "tandem-speed"}) {
      for (const bool free_token : {true, false}) {
        options = tandem_options(method, 3, 4);
        options.min_new_tokens = 6;
        options.free_token = free_token;
        EXPECT_EQ(ids_of(Generator(models, options).generate(tandem_sources(kind))), expected) << method;
      }
    }
  }
}

TEST(Tandem, CombinationsThatMakeNoSenseAreExplained) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  DecodeOptions options = tandem_options("tandem");
  options.free_token = false;
  options.window_rule = "fallback";
  EXPECT_THAT(error_of([&] { Generator(pair.models(), options); }), HasSubstr("may end before its first token"));
  GenerationModels plain;
  plain.target = pair.primary.get();
  plain.drafter = as_drafter(*pair.primary);
  EXPECT_THAT(error_of([&] { Generator(plain, tandem_options("tandem-speed")); }), HasSubstr("Tandem secondary"));
  options = tandem_options("speculative");
  options.acceptance = "accept_all";
  options.free_token = false;
  EXPECT_THAT(error_of([&] { Generator(plain, options); }), HasSubstr("this drafter does not read it either"));
}

TEST(Tandem, AnOracleReplaysNothingThatIsNotJudgedWindowByWindow) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  const AcceptedLengths lengths;
  GenerationModels models = pair.models();
  models.accepted_lengths = &lengths;
  DecodeOptions options = tandem_options("tandem");
  options.window_rule = "oracle";
  EXPECT_THAT(error_of([&] { Generator(models, options); }), HasSubstr("without verification none is"));
  options.method = "bild";
  EXPECT_EQ(error_of([&] { Generator(models, options); }), "no error");
  options.rollback_rule = "released_code";
  EXPECT_THAT(error_of([&] { Generator(models, options); }), HasSubstr("rollback_rule effective or literal"));
}

TEST(Tandem, APrimaryOfAnotherShapeOrVocabularyIsAnErrorThatNamesBoth) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  const auto other = tandem_primary_model(Kind::kDecoderOnly, 30);
  GenerationModels models = pair.models();
  models.target = other.get();
  const auto text = error_of([&] { Generator(models, tandem_options("tandem-speed")); });
  EXPECT_THAT(text, HasSubstr("24"));
  EXPECT_THAT(text, HasSubstr("30"));
  OracleModel oracle(oracle_info(24), random_oracle(24, 1));
  models.target = &oracle;
  EXPECT_THAT(error_of([&] { Generator(models, tandem_options("tandem")); }), HasSubstr("reads states of the model"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
