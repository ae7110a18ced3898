// What surrounds the loop: combinations that make no sense, vocabularies, order of results, sharing; and sessions
// that load what a method asks for.
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/signals.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/model_drafter.h"
#include "infer/loop/decode_loop.h"
#include "infer/session.h"
#include "model/files/checkpoint.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

Case some_case() {
  return {random_oracle(5, 1), mixture(random_oracle(5, 1), random_oracle(5, 2), 0.3), 5};
}

GenerationModels models_of(model::LanguageModel& target, model::LanguageModel* drafter = nullptr) {
  GenerationModels models{.target = &target};
  if (drafter != nullptr) models.drafter = as_drafter(*drafter);
  return models;
}

TEST(Generator, ExplainsCombinationsThatMakeNoSense) {
  DecodeOptions options{.method = "speculative", .temperature = 1, .acceptance = "exact"};
  const auto run = [&] { decode(some_case(), options, std::vector<Ids>{{2}}); };
  EXPECT_THAT(error_of(run), HasSubstr("compares with the target's most likely token"));
  options = {.method = "assisted", .temperature = 0.5};
  EXPECT_THAT(error_of(run), HasSubstr("use the method speculative"));
  options = {.window_rule = "fixed"};
  EXPECT_THAT(error_of(run), HasSubstr("drafts nothing"));
}

TEST(Generator, NamesUnknownPartsAndVocabulariesOfDifferentSizes) {
  DecodeOptions options{.method = "assisted", .window_rule = "fixd", .acceptance = "x"};
  EXPECT_THAT(error_of([&] { make_parts(options, nullptr); }), HasSubstr("did you mean fixed"));
  EXPECT_THAT(error_of([&] { make_acceptance_rule(options); }), HasSubstr("exact, rejection, block"));
  OracleModel target(oracle_info(5), random_oracle(5, 1)), drafter(oracle_info(6), random_oracle(6, 1));
  options = {.method = "assisted"};
  EXPECT_THAT(error_of([&] { Generator(models_of(target, &drafter), options); }),
              ::testing::AllOf(HasSubstr("5 ids"), HasSubstr("6 ids")));
  EXPECT_THAT(error_of([&] { Generator(models_of(target), options); }), HasSubstr("needs a drafter"));
  EXPECT_THAT(error_of([] { decode(some_case(), {}, std::vector<Ids>{{2}, {9}}); }), HasSubstr("input 2"));
}

TEST(Generator, PaddingIdsAreNeverPutOut) {
  constexpr int64_t kPieces = 4;
  const Pieces tokenizer(kPieces);
  OracleModel target(oracle_info(9), random_oracle(9, 1));
  const std::vector<Ids> sources = {{2}, {8, 3}, {3, 3, 5}};
  const auto largest = [](const std::vector<GenerationResult>& results) {
    int64_t id = 0;
    for (const auto& result : results) id = std::max(id, *std::max_element(result.ids.begin(), result.ids.end()));
    return id;
  };
  GenerationModels models = models_of(target);
  DecodeOptions options{.max_new_tokens = 12};
  EXPECT_GE(largest(Generator(models, options).generate(sources)), kPieces);
  models.target_tokenizer = &tokenizer;
  const auto greedy = Generator(models, options).generate(sources);
  for (const int64_t ids : {6, 9, 12}) {  // fewer than the target and more than the tokenizer, as many, and more
    OracleModel drafter(oracle_info(ids), random_oracle(ids, 2));
    models.drafter = as_drafter(drafter, &tokenizer);
    for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
      options.method = method;
      const auto results = Generator(models, options).generate(sources);
      EXPECT_LT(largest(results), kPieces) << method << " " << ids;
      if (options.method == "assisted") {
        EXPECT_EQ(ids_of(results), ids_of(greedy)) << ids;
      }
    }
  }
}

TEST(Generator, ResultsAreReportedInOrderAsTheyComplete) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  DecodeOptions options{.max_new_tokens = 6, .num_samples = 2, .batch_size = 2};
  const std::vector<Ids> sources = {{2}, {2, 2, 2}, {3, 3}, {}, {4, 4, 4, 4}};
  std::vector<Ids> reported;
  const auto results = Generator(models_of(target), options)
                           .generate(sources, 0, [&](size_t first, std::span<const GenerationResult> part) {
                             EXPECT_EQ(first, reported.size());
                             for (const auto& result : part) reported.push_back(result.ids);
                           });
  EXPECT_EQ(reported.size(), 10u);
  EXPECT_EQ(reported, ids_of(results));
  EXPECT_LE(target.encodes(), 5) << "samples of a source share its encoding";
}

// A stop in the middle of a batch is heard in the round where it comes, and the next call finds nothing of it.
TEST(Generator, AStopEndsABatchAtOnce) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  OracleModel drafter(oracle_info(5), mixture(random_oracle(5, 1), random_oracle(5, 2), 0.5));
  const std::vector<Ids> sources = {{2}, {2, 2, 2}, {3, 3}};
  for (const char* method : {"greedy", "sample", "assisted", "speculative", "bild"}) {
    DecodeOptions options{.method = method, .max_new_tokens = 100, .min_new_tokens = 100, .batch_size = 3};
    Generator generator(models_of(target, options.drafts() ? &drafter : nullptr), options);
    const auto whole = ids_of(generator.generate(sources));
    int64_t points = 0, steps = 0;
    {
      const SignalWatch watch;
      const LongWork work("what is complete", [&] {
        if (++points == 5) request_stop(SIGINT);
        steps = target.steps();
      });
      EXPECT_THROW(generator.generate(sources), Interrupted) << method;
      EXPECT_EQ(points, 5) << method;
      EXPECT_LE(target.steps() - steps, 1) << method;
    }
    EXPECT_EQ(ids_of(generator.generate(sources)), whole) << method;
  }
}

TEST(Generator, DecoderOnlyModelsContinuePrompts) {
  const auto function = random_oracle(5, 6, 1.5, {kEos});
  OraclePair pair({function, mixture(function, random_oracle(5, 7, 1.5, {kEos}), 0.4), 5, at::kDouble, false});
  const std::vector<Ids> prompts = {{2, 3, 4}, {3}, {4, 4, 2, 2, 3}};
  DecodeOptions options{.max_new_tokens = 9, .batch_size = 3};
  const auto greedy = Generator(models_of(pair.target), options).generate(prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Ids all = prompts[i];
    for (const int64_t token : greedy[i].ids) {
      const auto p = function({}, all);
      EXPECT_EQ(token, std::max_element(p.begin(), p.end()) - p.begin());
      all.push_back(token);
    }
  }
  options.method = "assisted";
  const auto assisted = Generator(pair.models(), options).generate(prompts);
  EXPECT_EQ(ids_of(assisted), ids_of(greedy));
  EXPECT_THROW(Generator(models_of(pair.target), {}).generate(std::vector<Ids>{{}}), UserError);
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    model::save_model(root_ / "target", *model::varied_model(model::tiny_mt5(), 3, at::kFloat));
    model::save_model(root_ / "small", *model::varied_model(model::tiny_mt5(), 4, at::kFloat));
  }

  Session session(const std::string& drafter) const {
    return Session({.target = (root_ / "target").string(), .drafter = drafter});
  }

  std::vector<int64_t> ids_by(Session& session, const std::string& method) const {
    const std::vector<int64_t> source = {5, 6, 7, 1};
    return session.generator({.method = method, .max_new_tokens = 12}).generate({&source, 1}).at(0).ids;
  }

  const TemporaryDirectory folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(SessionTest, DecodesByOneMethodAfterAnother) {
  Session with_drafter = session((root_ / "small").string());
  const auto plain = ids_by(with_drafter, "greedy");
  EXPECT_EQ(plain.size(), 12);
  EXPECT_EQ(ids_by(with_drafter, "assisted"), plain);
  EXPECT_EQ(ids_by(with_drafter, "ppd"), plain);
  EXPECT_EQ(ids_by(with_drafter, "greedy"), plain);
}

TEST_F(SessionTest, LoadsADrafterWhenAMethodAsksForIt) {
  Session absent = session((root_ / "nowhere").string());
  EXPECT_EQ(ids_by(absent, "greedy").size(), 12);
  EXPECT_THAT(error_of([&] { ids_by(absent, "assisted"); }), HasSubstr("nowhere"));
  EXPECT_EQ(ids_by(absent, "greedy").size(), 12);
}

}  // namespace
}  // namespace draftsmith::infer::testing
