// A Tandem secondary that stands alone: identities with the primary, what the primary is asked for, and counts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/suite/setting_grid.h"
#include "evaluate/theory/formulas.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

TEST(StandaloneTandem, IdentityWritesThePrimarysOutputAtAnyWindow) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind);
    const auto expected = ids_of(pair.run(tandem_options("greedy")));
    for (const bool free_token : {true, false}) {
      for (int64_t window = 1; window <= 6; ++window) {
        for (const int64_t batch : {1, 3, 8}) {
          DecodeOptions options = tandem_options("tandem", window, batch);
          options.free_token = free_token;
          const auto results = pair.run(options);
          EXPECT_EQ(ids_of(results), expected) << "window " << window << " batch " << batch << " free " << free_token;
          for (const auto& [ids, stats, log_probabilities, score, error] : results) {
            const int64_t tokens = std::ssize(ids);
            EXPECT_EQ(stats.target_runs, free_token ? divide_up(tokens, window + 1) : divide_up(tokens, window) - 1);
            EXPECT_EQ(stats.draft_runs, stats.drafted);
            EXPECT_EQ(stats.drafted, free_token ? tokens - stats.target_runs : tokens);
            EXPECT_EQ(stats.cut, 0);
          }
        }
      }
    }
  }
}

TEST(StandaloneTandem, WindowsThatEndEarlyKeepTheIdentity) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind);
    DecodeOptions options = tandem_options("greedy");
    options.min_new_tokens = 9;
    const auto expected = ids_of(pair.run(options));
    for (const char* window : {"dynamic", "fallback"}) {
      options = tandem_options("tandem", 3, 3);
      options.min_new_tokens = 9;
      options.window_rule = window;
      options.confidence = 0.3;
      EXPECT_EQ(ids_of(pair.run(options)), expected) << window;
      options.free_token = false;
      if (std::string(window) == "dynamic") {
        EXPECT_EQ(ids_of(pair.run(options)), expected);
      }
    }
  }
}

// A primary that notes what is asked of it.
class RecordingPrimary : public model::TransformerModel {
 public:
  using TransformerModel::TransformerModel;
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    steps.push_back(input);
    return TransformerModel::step(input, state);
  }
  std::vector<model::StepInput> steps;
};

TEST(StandaloneTandem, ThePrimaryComputesLogitsAndRepresentationsOnlyWhereTheyAreUsed) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = random_pair(kind);
    RecordingPrimary primary(pair.primary->config(), pair.primary->parameters());
    GenerationModels models = pair.models();
    models.target = &primary;
    for (const bool free_token : {true, false}) {
      primary.steps.clear();
      DecodeOptions options = tandem_options("tandem", 3, 4);
      options.free_token = free_token;
      Generator(models, options).generate(tandem_sources(kind));
      ASSERT_FALSE(primary.steps.empty());
      for (const auto& step : primary.steps) {
        EXPECT_EQ(step.hidden_layers, (std::vector<int64_t>{0, 2}));
        EXPECT_LE(step.tokens.size(1), 8);
        if (!free_token) {
          EXPECT_EQ(step.logits, model::Logits::kNone);
        } else {
          EXPECT_NE(step.logits, model::Logits::kAll);
        }
      }
    }
  }
}

TEST(StandaloneTandem, TokensAreToldOnceInOrder) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly, kNoise);
  for (const bool free_token : {true, false}) {
    DecodeOptions options = tandem_options("tandem", 3, 3);
    options.free_token = free_token;
    std::vector<Ids> told(tandem_sources(Kind::kDecoderOnly).size());
    std::vector<int> ends(told.size(), 0);
    const auto results = Generator(pair.models(), options)
                             .generate(tandem_sources(Kind::kDecoderOnly), 0, {},
                                       [&](size_t output, std::span<const int64_t> tokens, bool finished) {
                                         EXPECT_EQ(ends[output], 0);
                                         told[output].insert(told[output].end(), tokens.begin(), tokens.end());
                                         ends[output] += finished ? 1 : 0;
                                       });
    EXPECT_EQ(told, ids_of(results));
    EXPECT_THAT(ends, ::testing::Each(1));
  }
}

// Whoever writes the last token, the target's time before it counts.
TEST(StandaloneTandem, TheTargetsTimeIsCountedWhenItsTokenIsTheLast) {
  for (const Kind kind : kKinds) {
    DecodeOptions options = tandem_options("tandem", 3, 4);
    options.max_new_tokens = 1;
    for (const auto& [ids, stats, log_probabilities, score, error] : identity_pair(kind).run(options)) {
      EXPECT_EQ(stats.target_runs, 1);
      EXPECT_EQ(stats.drafted, 0);
      EXPECT_GT(stats.seconds.verify, 0);
    }
  }
}

TEST(StandaloneTandem, TokensThatTheTargetReadsAreCountedAndTheLastBlockIsNoneOfThem) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  DecodeOptions options = tandem_options("tandem", 5, 3);
  options.min_new_tokens = options.max_new_tokens.emplace(10);
  options.free_token = false;
  const DecodeStats blind = total(pair.run(options));
  EXPECT_EQ(blind.target_tokens, 5 * blind.target_runs);  // one run an output, and not on the last five
  EXPECT_EQ(blind.drafted, 10 * blind.target_runs);
  evaluate::Setting run;
  run.decode = options;
  const infer::StepCosts costs{{1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5}, 0.1};
  const auto outputs = static_cast<double>(blind.target_runs);
  EXPECT_DOUBLE_EQ(evaluate::predict(run, blind, costs)->speedup_from_counts,
                   10 * outputs / (outputs * (10 * 0.1 + 3)));
  options.free_token = true;  // its own first token from one token, then 6 and 4 (three drafted)
  for (const auto& [ids, stats, log_probabilities, score, error] : pair.run(options)) {
    EXPECT_EQ(stats.target_runs, 2);
    EXPECT_EQ(stats.target_tokens, 1 + 6);
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
