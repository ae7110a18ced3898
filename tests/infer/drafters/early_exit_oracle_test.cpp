// The decoding loop with a drafter that is part of the target, on oracle models: verification is the drafter's, once
// for each draft, and outputs are the target's, exactly.
#include <gtest/gtest.h>

#include "infer/parts.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

// Drafts by a function of its own and verifies by the target's step.
class OracleExit : public Drafter {
 public:
  OracleExit(OracleModel& target, OracleFunction function, int64_t& runs)
      : target_(target), function_(std::move(function)), runs_(runs) {}

  DrafterTraits traits() const override { return {.name = "oracle exit"}; }
  void prefill(const DraftBegin& begin) override { state_ = begin.target_state; }
  at::Tensor next_logits(const DraftRequest& request) override {
    EXPECT_EQ(state_->rows(), std::ssize(request.rows));
    const auto logits = at::zeros({std::ssize(request.rows), target_.info().vocabulary}, at::kDouble);
    for (size_t b = 0; b < request.rows.size(); ++b) {
      if (request.active[b] == 0) continue;
      const Row& row = request.rows[b];
      Ids prefix(row.tokens.begin() + row.prefix, row.tokens.end());
      for (const at::Tensor& step : request.drafted) prefix.push_back(step[static_cast<int64_t>(b)].item<int64_t>());
      const std::vector<double> p = function_(row.source, prefix);
      logits[static_cast<int64_t>(b)].copy_(at::tensor(p, at::kDouble).log());
    }
    return logits;
  }
  model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                               model::DecodeState& state) override {
    EXPECT_EQ(&target, &target_);
    EXPECT_EQ(&state, state_);
    ++runs_;
    return target.step(input, state);
  }
  void observe(const DraftObservation& observation) override {
    for (size_t b = 0; b < observation.rows.size(); ++b) {
      if (observation.rows[b].finished) continue;
      EXPECT_EQ(state_->length(static_cast<int64_t>(b)), observation.rows[b].length() - 1);
    }
  }
  void select_rows(std::span<const int64_t> rows) override { EXPECT_EQ(state_->rows(), std::ssize(rows)); }

 private:
  OracleModel& target_;
  OracleFunction function_;
  int64_t& runs_;
  model::DecodeState* state_ = nullptr;
};

const std::vector<Ids> kOracleSources = {{2}, {3, 4}, {5, 2, 3}, {4}, {2, 2}, {3}, {5, 5}};

struct OracleExitRun {
  std::vector<GenerationResult> results;
  int64_t runs = 0;   // of run_target()
  int64_t steps = 0;  // of the target
};

OracleExitRun run(const DecodeOptions& options, int64_t vocabulary = 6,
                  const std::vector<Ids>& sources = kOracleSources) {
  OracleExitRun made;
  const OracleFunction whole = random_oracle(vocabulary, 3);
  OracleModel target(oracle_info(vocabulary), whole);
  GenerationModels models;
  models.target = &target;
  if (options.drafts()) {
    auto drafter = std::make_unique<OracleExit>(target, mixture(whole, random_oracle(vocabulary, 4), 0.4), made.runs);
    made.results = Generator(models, options, make_parts(options, std::move(drafter))).generate(sources);
  } else {
    made.results = Generator(models, options).generate(sources);
  }
  made.steps = target.steps();
  return made;
}

TEST(EarlyExit, OnOraclesVerifiedDraftsEqualGreedyForAllWindowsAndBatches) {
  const auto expected = tokens_of(run(exit_options("greedy")).results);
  for (const char* rule : {"fixed", "dynamic", "fallback"}) {
    for (int64_t window = 1; window <= 8; ++window) {
      for (int64_t batch = 1; batch <= 6; ++batch) {
        DecodeOptions options = exit_options("assisted", batch);
        options.window_rule = rule;
        options.window = window;
        options.max_draft = window;
        options.confidence = 0.3;
        const OracleExitRun made = run(options);
        ASSERT_EQ(tokens_of(made.results), expected) << rule << " window " << window << " batch " << batch;
        EXPECT_EQ(made.runs, made.steps);
      }
    }
  }
}

// 12,000 draws and about 60 cells: a deviate above 4.5 happens once in 300,000 true tests.
TEST(EarlyExit, OnOraclesSamplesAreDistributedAsTheTarget) {
  const std::vector<Ids> sources = {{2}, {2}, {2}};
  const auto expected = enumerate(random_oracle(4, 3), {2}, {.temperature = 1}, 3);
  for (const char* rule : {"fixed", "dynamic", "fallback"}) {
    DecodeOptions options = exit_options("speculative", 3);
    options.temperature = 1;
    options.window_rule = rule;
    options.window = 2;
    options.confidence = 0.5;
    options.max_new_tokens = 3;
    options.num_samples = 4000;
    EXPECT_LT(chi_square_deviate(expected, count_sequences(run(options, 4, sources).results)), 4.5) << rule;
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
