// Samples of verified early-exit drafting are distributed as the whole model's, whatever the first layers say.
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

// 8000 draws and about 60 cells: a deviate above 4.5 happens once in 300,000 true tests; what the first layers write
// gives deviates above 20.
TEST(EarlyExit, SamplesAreDistributedAsTheWholeModels) {
  const auto model = exit_model({.family = "llama", .layers = 3, .vocabulary = 5});
  const std::vector<Ids> prompts = {{2, 3, 4}, {2, 3, 4}};
  const auto expected = enumerate_outputs(*model, prompts[0], 3);
  for (const char* window : {"fixed", "dynamic", "fallback"}) {
    DecodeOptions options = exit_options("speculative", 2);
    options.temperature = 1;
    options.window_rule = window;
    options.window = 2;
    options.confidence = 0.5;
    options.max_new_tokens = 3;
    options.num_samples = 4000;
    const auto verified = Generator(exit_models(*model, 1), options).generate(prompts);
    EXPECT_LT(chi_square_deviate(expected, count_sequences(verified)), 4.5) << window;
    EXPECT_LT(total(verified).accepted, total(verified).drafted);
    options.acceptance = "accept_all";
    const auto kept = Generator(exit_models(*model, 1), options).generate(prompts);
    EXPECT_GT(chi_square_deviate(expected, count_sequences(kept)), 20) << window;
  }
}

TEST(EarlyExit, AlphaIsThatOfTheSameLayersAsAModel) {
  const auto model = exit_model({.family = "gpt2"});
  const auto small = first_layers(*model, 2);
  GenerationModels apart;
  apart.target = model.get();
  apart.drafter = as_drafter(*small);
  DecodeOptions options = exit_options("speculative", 3);
  options.temperature = 1;
  options.measure_alpha = true;
  const auto inside = run_exit(*model, 2, options);
  const auto expected = Generator(apart, options).generate(exit_sources(*model));
  EXPECT_EQ(tokens_of(inside), tokens_of(expected));
  EXPECT_NEAR(total(inside).alpha(), total(expected).alpha(), 1e-9);
}

}  // namespace
}  // namespace draftsmith::infer::testing
