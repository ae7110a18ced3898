// Predictive pipelined decoding samples from the model's own distribution (Yang et al. 2024, appendix B), with any
// warping: it writes what plain sampling writes, and its samples are compared with an enumeration of all outputs.
#include <gtest/gtest.h>

#include "infer/sampling/warping.h"
#include "tests/infer/inside/ppd_fixtures.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/early_exit_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

struct NamedWarping {
  std::string name;
  Warping warping;
};

const std::vector<NamedWarping>& warpings() {
  static const std::vector<NamedWarping> kWarpings = {{"all tokens", {}},
                                                      {"T 0.7", {.temperature = 0.7}},
                                                      {"top-k", {.top_k = 3}},
                                                      {"top-p", {.top_p = 0.8}},
                                                      {"both", {.temperature = 1.5, .top_k = 4, .top_p = 0.9}}};
  return kWarpings;
}

DecodeOptions sampled(const std::string& method, const Warping& warping, int64_t batch) {
  DecodeOptions options = exit_options(method, batch);
  options.temperature = warping.temperature;
  options.top_k = warping.top_k;
  options.top_p = warping.top_p;
  options.num_samples = 3;
  return options;
}

class PpdSampling : public ::testing::TestWithParam<std::string> {};

TEST_P(PpdSampling, WritesWhatPlainSamplingWrites) {
  const auto model = exit_model({.family = GetParam()});
  int64_t matches = 0;
  int64_t misses = 0;
  for (const auto& [name, warping] : warpings()) {
    const auto expected = tokens_of(run_exit(*model, 0, sampled("sample", warping, 1)));
    for (const int64_t early : {2, 3}) {
      for (const int64_t batch : {1, 2, 5}) {
        DecodeOptions options = sampled("ppd", warping, batch);
        options.early_layer = early;
        options.candidates = 1 + batch % 3;
        const auto results = run_exit(*model, 0, options);
        ASSERT_EQ(tokens_of(results), expected) << name << ", d-bar " << early << ", batch " << batch;
        matches += total(results).early_matches;
        misses += total(results).early_predictions - total(results).early_matches;
      }
    }
  }
  EXPECT_GT(matches, 0);
  EXPECT_GT(misses, 0);
}

TEST_P(PpdSampling, ProcessorsActAsInPlainSampling) {
  const auto model = exit_model({.family = GetParam()});
  DecodeOptions options = sampled("sample", {.top_k = 8}, 4);
  options.repetition_penalty = 1.5;
  options.no_repeat_ngram_size = 2;
  options.min_new_tokens = 5;
  const auto expected = tokens_of(run_exit(*model, 0, options));
  options.method = "ppd";
  EXPECT_EQ(tokens_of(run_exit(*model, 0, options)), expected);
}

TEST_P(PpdSampling, MatchesAreThoseOfTeacherForcing) {
  const auto model = exit_model({.family = GetParam()});
  const auto sources = exit_sources(*model);
  PpdDecoding decoding;
  decoding.ppd = {2, 3};
  decoding.batch = 4;
  decoding.settings.warping = {.temperature = 1, .top_p = 0.95};
  const PpdOutput output = run_ppd(*model, sources, decoding);
  EXPECT_EQ(output.ids, run_plainly(*model, sources, decoding).ids);
  for (size_t i = 0; i < sources.size(); ++i) {
    const ForcedMatches forced = forced_matches(*model, sources[i], output.ids[i], decoding);
    EXPECT_EQ(output.stats[i].early_predictions, forced.predictions) << i;
    EXPECT_EQ(output.stats[i].early_matches, forced.matches) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PpdSampling, ::testing::Values("t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom"),
                         [](const auto& family) { return family.param; });

// 4,000 samples and up to 80 cells: a deviate above kAlarm happens once in a million true tests. What the early layer
// itself writes (CALM that leaves there) gives deviates from 9 up for the first prompt.
TEST(PpdSamples, AreDistributedAsTheWholeModels) {
  const std::vector<Ids> prompts = {{2, 3, 4}, {3}};
  for (const char* family : {"t5", "llama"}) {
    const auto model = exit_model({.family = family, .layers = 2, .vocabulary = 5});
    for (const auto& [name, warping] : warpings()) {
      for (const int64_t batch : {1, 2}) {
        DecodeOptions options = sampled("ppd", warping, batch);
        options.early_layer = 1;
        options.candidates = 2;
        options.max_new_tokens = 3;
        options.num_samples = 4000;
        const auto results = Generator(exit_models(*model), options).generate(prompts);
        options.method = "calm";
        options.exit_threshold = 0;
        const auto early = Generator(exit_models(*model), options).generate(prompts);
        for (size_t i = 0; i < prompts.size(); ++i) {
          const auto expected = enumerate_outputs(*model, prompts[i], 3, warping);
          const auto deviate = [&](const std::vector<GenerationResult>& all) {
            return chi_square_deviate(expected, count_sequences(std::span(all).subspan(i * 4000, 4000)));
          };
          EXPECT_LT(deviate(results), kAlarm) << family << ", " << name << ", batch " << batch << ", prompt " << i;
          if (i > 0) continue;
          EXPECT_GT(deviate(early), kAlarm) << family << ", " << name << ", batch " << batch;
        }
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
