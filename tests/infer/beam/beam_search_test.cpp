// Beam search of oracle models: the best of all sequences where the beams hold them all, the same outputs in every
// batch, the options around it, and the rules of a source's search: what goes on, what is finished, when it ends.
#include "infer/beam/beam_search.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

const std::vector<Ids> kBeamSources{{2}, {3, 2, 4}, {4, 4}, {2, 3}, {3}};

DecodeOptions beam_options(int64_t beams, int64_t outputs = 1) {
  DecodeOptions options;
  options.method = "beam";
  options.num_beams = beams;
  options.n_best = outputs;
  options.max_new_tokens = 4;
  return options;
}

GenerationModels models_of_beams(model::LanguageModel& target) {
  GenerationModels models;
  models.target = &target;
  return models;
}

std::vector<GenerationResult> beam_results(const OracleFunction& function, const DecodeOptions& options,
                                           std::span<const Ids> sources = kBeamSources) {
  OracleModel target(oracle_info(5), function);
  return Generator(models_of_beams(target), options).generate(sources);
}

// Five tokens and at most four of them: 5^3 beams hold every sequence that goes on.
TEST(BeamSearch, WithAllBeamsFindsTheBestSequencesInOrder) {
  const OracleFunction function = random_oracle(5, 1);
  for (const double penalty : {0.0, -1.0}) {
    DecodeOptions options = beam_options(125, 6);
    options.length_penalty = penalty;
    options.early_stopping = "never";
    const auto results = beam_results(function, options);
    ASSERT_EQ(results.size(), 6 * kBeamSources.size());
    for (size_t s = 0; s < kBeamSources.size(); ++s) {
      std::vector<std::pair<double, Ids>> all;
      for (const auto& [ids, probability] : enumerate(function, kBeamSources[s], {}, 4)) {
        all.emplace_back(std::log(probability) / std::pow(static_cast<double>(ids.size()), penalty), ids);
      }
      std::ranges::sort(all, std::greater<>());
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(results[6 * s + i].ids, all[i].second) << penalty << ", source " << s << ", output " << i;
        EXPECT_NEAR(results[6 * s + i].score.value(), all[i].first, 1e-9);
      }
    }
  }
}

TEST(BeamSearch, OutputsAndScoresAreTheSameInEveryBatch) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    DecodeOptions options = beam_options(3, 2);
    options.max_new_tokens = 9;
    const auto alone = beam_results(random_oracle(5, seed), options);
    options.batch_size = 4;
    const auto together = beam_results(random_oracle(5, seed), options);
    EXPECT_EQ(ids_of(together), ids_of(alone));
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].score, alone[i].score);
      EXPECT_EQ(together[i].stats.target_runs, alone[i].stats.target_runs) << "sources end by themselves";
    }
  }
}

TEST(BeamSearch, CountsItsRunsAndGivesEachTokenToTheListener) {
  OracleModel target(oracle_info(5), random_oracle(5, 2));
  Generator generator(models_of_beams(target), beam_options(3, 2));
  std::map<size_t, Ids> heard;
  const auto results =
      generator.generate(kBeamSources, 0, {}, [&](size_t output, std::span<const int64_t> tokens, bool) {
        heard[output].insert(heard[output].end(), tokens.begin(), tokens.end());
      });
  const DecodeStats& stats = results[0].stats;
  EXPECT_EQ(stats.target_tokens, 3 * stats.target_runs);
  EXPECT_GT(stats.seconds.total(), 0);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(heard[i], results[i].ids);
    EXPECT_EQ(results[i].stats.emitted, std::ssize(results[i].ids));
  }
}

TEST(BeamSearch, NoNumbersFailTheirSourceAlone) {
  const OracleFunction good = random_oracle(5, 1);
  const OracleFunction bad = [&](std::span<const int64_t> source, std::span<const int64_t> prefix) {
    auto p = good(source, prefix);
    if (source.size() == 3 && prefix.size() == 1) p[2] = std::nan("");
    return p;
  };
  DecodeOptions options = beam_options(2, 2);
  options.batch_size = 5;
  const auto wanted = beam_results(good, options);
  const auto results = beam_results(bad, options);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].error.has_value(), i / 2 == 1) << i;
    EXPECT_EQ(results[i].ids, i / 2 == 1 ? Ids{} : wanted[i].ids) << i;
  }
}

TEST(BeamSearch, ModelsOwnSettingsAreTheDefaults) {
  model::GenerationConfig generation;
  generation.num_beams = 6;
  generation.length_penalty = 0.6;
  generation.early_stopping = "true";
  DecodeOptions options;
  options.method = "beam";
  const BeamSettings own = beam_settings(options, generation);
  EXPECT_EQ(own.beams, 6);
  EXPECT_EQ(own.length_penalty, 0.6);
  EXPECT_EQ(own.early_stopping, EarlyStopping::kTrue);
  EXPECT_EQ(beam_settings(options, {}).beams, 4);
  options.num_beams = 2;
  options.early_stopping = "never";
  EXPECT_EQ(beam_settings(options, generation).beams, 2);
  EXPECT_EQ(beam_settings(options, generation).early_stopping, EarlyStopping::kNever);
}

TEST(BeamSearch, ImpossibleOptionsAreExplained) {
  const auto run = [&](DecodeOptions options) { return error_of([&] { beam_results(random_oracle(5, 1), options); }); };
  EXPECT_THAT(run(beam_options(2, 3)), ::testing::HasSubstr("at most num_beams = 2"));
  DecodeOptions samples = beam_options(2);
  samples.num_samples = 2;
  EXPECT_THAT(run(samples), ::testing::HasSubstr("use n_best"));
  DecodeOptions warm = beam_options(2);
  warm.temperature = 0.7;
  EXPECT_THAT(run(warm), ::testing::HasSubstr("use the method sample"));
}

// Real caches: beams that are repeated and left give what recomputing every beam's text gives.
TEST(BeamSearch, ReorderedCachesGiveTheLogProbabilitiesOfTheOutputs) {
  for (const bool encoder_decoder : {true, false}) {
    model::TransformerModel model(encoder_decoder ? model::t5_config() : model::llama_config(), 3);
    model.requires_grad(false);
    for (const auto& [name, value] : model.parameters()) {
      if (value.dim() == 2) value.mul_(name.starts_with("embedding") ? 1 : 3);
    }
    model.to(at::kCPU, at::kDouble);
    model.pack();
    DecodeOptions options = beam_options(5, 3);
    options.length_penalty = 0;
    options.max_new_tokens = 20;
    options.batch_size = 3;
    options.log_probs = true;
    const auto results = Generator(models_of_beams(model), options).generate(kBeamSources);
    for (const GenerationResult& result : results) {
      double sum = 0;
      for (const double one : result.log_probabilities) sum += one;
      EXPECT_NEAR(result.score.value(), sum, 1e-9) << encoder_decoder;
    }
  }
}

// Two beams whose outputs so far are those given.
struct TwoBeams {
  BeamSettings settings{.beams = 2};
  int64_t limit = 10;
  std::vector<Ids> outputs{{5}, {6}};

  Hypotheses search() const { return {settings, limit}; }
  std::vector<Continuation> advance(Hypotheses& search, const std::vector<Continuation>& best,
                                    const std::vector<char>& ended) const {
    const std::vector<std::span<const int64_t>> spans(outputs.begin(), outputs.end());
    return search.advance(best, ended, spans);
  }
};

TEST(Hypotheses, ContinuationsThatEndAreFinishedAndOthersGoOnInTheirPlace) {
  const TwoBeams two;
  Hypotheses search = two.search();
  const auto running = two.advance(search, {{0, 1, -1}, {1, 7, -2}, {0, 8, -3}, {1, 1, -4}}, {1, 0, 0, 1});
  ASSERT_EQ(running.size(), 2);
  EXPECT_EQ(running[0].token, 7);
  EXPECT_EQ(running[0].beam, 1);
  EXPECT_EQ(running[1].token, 8);
  ASSERT_EQ(search.finished().size(), 1) << "the fourth only stood in for those that end";
  EXPECT_THAT(search.finished()[0].tokens, ::testing::ElementsAre(5, 1));
  EXPECT_DOUBLE_EQ(search.finished()[0].score, -0.5);
  EXPECT_FALSE(search.done());
}

TEST(Hypotheses, EarlyStoppingSaysWhenFullSearchesEnd) {
  const auto done = [](EarlyStopping early, double penalty, double third) {
    TwoBeams two;
    two.settings.early_stopping = early;
    two.settings.length_penalty = penalty;
    Hypotheses search = two.search();
    two.advance(search, {{0, 1, -1}, {1, 1, -2}, {0, 8, third}, {1, 8, third - 1}}, {1, 1, 0, 0});
    return search.done();
  };
  EXPECT_TRUE(done(EarlyStopping::kTrue, 1, -1.5));
  EXPECT_FALSE(done(EarlyStopping::kFalse, 1, -1.5)) << "-1.5 / 2 is better than -2 / 2";
  EXPECT_TRUE(done(EarlyStopping::kFalse, 1, -2.5));
  EXPECT_FALSE(done(EarlyStopping::kNever, 1, -2.5)) << "-2.5 / 10 is better than -2 / 2";
  EXPECT_TRUE(done(EarlyStopping::kNever, 0, -2.5));
}

}  // namespace
}  // namespace draftsmith::infer::testing
