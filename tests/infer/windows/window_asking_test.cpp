// When a window rule is asked while drafting, and of which rows.

#include <gtest/gtest.h>

#include "infer/acceptance/exact.h"
#include "infer/drafters/model_drafter.h"
#include "infer/windows/fixed.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

// Lets every row go on, or none, and notes whom it was asked about.
class NotingWindow : public FixedWindow {
 public:
  NotingWindow(int64_t window, Decides decides, std::vector<Ids>& asked, bool answer = true)
      : FixedWindow(window), decides_(decides), asked_(asked), answer_(answer) {}
  WindowTraits traits() const override { return {.name = "noting", .decides = decides_}; }
  at::Tensor go_on(const DraftStep& step) override {
    asked_.emplace_back(step.active.begin(), step.active.end());
    return at::full({step.logits.size(0)}, answer_, at::kBool);
  }

 private:
  Decides decides_;
  std::vector<Ids>& asked_;
  bool answer_;
};

// Token 2 twice, then EOS, after source {2}; token 3 forever after any other.
std::vector<double> next_token(std::span<const int64_t> source, std::span<const int64_t> prefix) {
  if (source.front() != 2) return one_hot(4, 3);
  return one_hot(4, prefix.size() < 2 ? 2 : kEos);
}

std::vector<GenerationResult> decode_with(std::unique_ptr<WindowRule> window, std::span<const Ids> sources) {
  OracleModel target(oracle_info(4), next_token);
  OracleModel drafter(oracle_info(4), next_token);
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  DecodeOptions options;
  options.method = "assisted";
  options.max_new_tokens = 8;
  options.batch_size = 2;
  DraftParts parts{std::make_unique<ModelDrafter>(drafter, 4), std::move(window), std::make_unique<ExactAcceptance>()};
  return Generator(models, options, std::move(parts)).generate(sources);
}

TEST(WindowRules, AreNotAskedAboutTheLastTokenAllowedNorAfterAnEos) {
  const std::vector<Ids> sources = {{2}, {3}};
  std::vector<Ids> asked;
  const auto results = decode_with(std::make_unique<NotingWindow>(3, Decides::kAfterToken, asked), sources);
  EXPECT_EQ(results[0].ids, (Ids{2, 2, kEos}));
  EXPECT_EQ(results[1].ids, Ids(8, 3));
  // Both rows after tokens 1 and 2, none after the third; then the second row alone, which wrote 4 tokens: again 3.
  ASSERT_EQ(asked.size(), 4U);
  EXPECT_EQ(asked[0], (Ids{1, 1}));
  EXPECT_EQ(asked[1], (Ids{1, 1}));
  for (size_t i = 2; i < asked.size(); ++i) EXPECT_EQ(std::count(asked[i].begin(), asked[i].end(), 1), 1);
}

TEST(WindowRules, AreNotAskedWhenTheOnlyRowEndedWithAnEos) {
  std::vector<Ids> asked;
  const std::vector<Ids> source = {{2}};
  decode_with(std::make_unique<NotingWindow>(6, Decides::kAfterToken, asked), source);
  EXPECT_EQ(asked.size(), 2U);
}

TEST(WindowRules, ThatDecideBeforeATokenLeaveItOut) {
  std::vector<Ids> asked;
  const std::vector<Ids> source = {{3}};
  const auto results = decode_with(std::make_unique<NotingWindow>(1, Decides::kBeforeToken, asked, false), source);
  EXPECT_EQ(results[0].ids, Ids(8, 3));
  EXPECT_EQ(results[0].stats.drafted, 0);
  EXPECT_EQ(results[0].stats.target_runs, 8);
  EXPECT_EQ(asked.size(), 7U);  // nothing is drafted for the last token, which is the target's own
}

}  // namespace
}  // namespace draftsmith::infer::testing
