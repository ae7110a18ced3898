// Where the tokens of an output are from.
#include "infer/traced_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

std::string written(const std::vector<TracedToken>& tokens) {
  std::string text;
  for (const TracedToken& token : tokens) text += std::to_string(token.id) + "dutr"[static_cast<size_t>(token.origin)];
  return text;
}

TEST(TracedTokens, FollowTheRounds) {
  const std::vector<int64_t> output{1, 2, 3, 4, 5, 6};
  const std::vector<JudgedDraft> drafts{{.position = 0, .tokens = {1, 2, 9, 8}, .accepted = 2},
                                        {.position = 3, .tokens = {}, .accepted = 0}};
  EXPECT_EQ(written(traced_tokens(output, drafts, 2)), "1d2d9r8r3t4t5u6u");
}

TEST(TracedTokens, AnOutputWithoutDraftsIsTheTargets) {
  EXPECT_EQ(written(traced_tokens(std::vector<int64_t>{1, 2}, {})), "1t2t");
}

TEST(TracedTokens, ThePromptsRunWritesTheFirstOne) {
  const std::vector<JudgedDraft> drafts{{.position = 1, .tokens = {2}, .accepted = 1}};
  EXPECT_EQ(written(traced_tokens(std::vector<int64_t>{1, 2, 3}, drafts)), "1t2d3t");
}

TEST(TracedTokens, NothingFollowsAnEnd) {
  const std::vector<JudgedDraft> drafts{{.position = 0, .tokens = {1, 2, 7}, .accepted = 2}};
  EXPECT_EQ(written(traced_tokens(std::vector<int64_t>{1, 2}, drafts)), "1d2d");
}

// The tokens that were not taken back.
std::vector<int64_t> kept(const std::vector<TracedToken>& tokens) {
  std::vector<int64_t> ids;
  for (const TracedToken& token : tokens) {
    if (token.origin != TokenOrigin::kRejected) ids.push_back(token.id);
  }
  return ids;
}

TEST(TraceOutput, TracesTheOutputOfTheMethod) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  OracleModel drafter(oracle_info(5), mixture(random_oracle(5, 1), random_oracle(5, 2), 0.5));
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  for (const char* method : {"speculative", "assisted", "bild"}) {
    DecodeOptions options;
    options.method = method;
    options.temperature = 0;
    options.schedule = "heuristic_transient";  // windows that begin anew with each source, as traced ones do
    options.max_new_tokens = 24;
    Generator generator(models, options);
    std::string origins;
    for (const std::vector<int64_t>& source : {std::vector<int64_t>{2, 3}, {3}, {4, 2}, {2, 4, 4}, {3, 3, 2, 4}}) {
      const GenerationResult result = generator.generate(std::span(&source, 1), 7).front();
      const auto traced = trace_output(models, options, source, 7);
      EXPECT_EQ(kept(traced), result.ids) << method;
      const auto drafted = std::ranges::count_if(traced, [](const TracedToken& token) {
        return token.origin == TokenOrigin::kDrafted || token.origin == TokenOrigin::kUnverified;
      });
      // Of a cut round it is not known whether drafted tokens or the target's were cut.
      EXPECT_LE(drafted, result.stats.accepted) << method;
      EXPECT_GE(drafted, result.stats.accepted - result.stats.cut) << method;
      origins += written(traced);
    }
    EXPECT_THAT(origins, ::testing::HasSubstr("d")) << method;
    EXPECT_THAT(origins, ::testing::HasSubstr("t")) << method;
    if (std::string(method) == "bild") continue;  // its thresholds take nothing back here
    EXPECT_THAT(origins, ::testing::HasSubstr("r")) << method;
  }
}

TEST(TraceOutput, KnowsNothingOfMethodsWithoutDrafts) {
  OracleModel target(oracle_info(5), random_oracle(5, 1));
  GenerationModels models;
  models.target = &target;
  DecodeOptions options;
  options.method = "greedy";
  EXPECT_TRUE(trace_output(models, options, {2, 3}, 0).empty());
}

}  // namespace
}  // namespace draftsmith::infer::testing
