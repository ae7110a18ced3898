// Decoding with a Tandem secondary: identities with the primary, losslessness, caches that equal recomputation, and
// what does not fit together.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/tandem_drafter.h"
#include "infer/forced_alpha.h"
#include "infer/parts.h"
#include "tests/infer/oracle_fixtures.h"
#include "tests/infer/tandem_fixtures.h"
#include "tests/model/transformer_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kNoise = 0.1;
constexpr Kind kKinds[] = {Kind::kEncoderDecoder, Kind::kDecoderOnly};

int64_t up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

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
      for (const auto& [ids, stats] : results) {
        EXPECT_EQ(stats.accepted, stats.drafted);
        EXPECT_EQ(stats.target_runs, up(std::ssize(ids), window + 1)) << "window " << window;
      }
    }
  }
}

TEST(Tandem, StandaloneIdentityWritesThePrimarysOutputAtAnyWindow) {
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
          for (const auto& [ids, stats] : results) {
            const int64_t tokens = std::ssize(ids);
            EXPECT_EQ(stats.target_runs, free_token ? up(tokens, window + 1) : up(tokens, window) - 1);
            EXPECT_EQ(stats.draft_runs, stats.drafted);
            EXPECT_EQ(stats.drafted, free_token ? tokens - stats.target_runs : tokens);
            EXPECT_EQ(stats.cut, 0);
          }
        }
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
    EXPECT_EQ(ids_of(pair.run(literal)), expected);
    literal.rollback_rule = "released_code";  // rows that owe the target a token of its own after a rollback
    EXPECT_EQ(ids_of(pair.run(literal)), expected);
  }
}

TEST(Tandem, StandaloneWindowsThatEndEarlyKeepTheIdentity) {
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

TEST(Tandem, SamplesShareThePromptAndDoNotDependOnTheBatch) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind, kNoise);
    for (const char* method : {"tandem", "tandem-speed"}) {
      DecodeOptions options = tandem_options(method, 3, 1);
      options.temperature = 1;
      const auto one = ids_of(pair.run(options));
      options.num_samples = 4;
      const auto alone = ids_of(pair.run(options));
      for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(alone[4 * i], one[i]) << method;
      EXPECT_GT(std::set<Ids>(alone.begin(), alone.end()).size(), one.size() * 2);
      options.batch_size = 5;
      EXPECT_EQ(ids_of(pair.run(options)), alone) << method;
    }
    DecodeOptions greedy = tandem_options("greedy");
    greedy.num_samples = 4;
    DecodeOptions options = tandem_options("tandem-speed", 4, 3);
    options.num_samples = 4;
    EXPECT_EQ(ids_of(pair.run(options)), ids_of(pair.run(greedy)));
  }
}

// A primary that notes what is asked of it.
class Recorder : public model::TransformerModel {
 public:
  using TransformerModel::TransformerModel;
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    steps.push_back(input);
    return TransformerModel::step(input, state);
  }
  std::vector<model::StepInput> steps;
};

TEST(Tandem, ThePrimaryComputesLogitsAndRepresentationsOnlyWhereTheyAreUsed) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = random_pair(kind);
    Recorder primary(pair.primary->config(), pair.primary->parameters());
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

// Probability of every output of up to `limit` tokens, from the model's own logits.
std::map<Ids, double> enumerate_outputs(model::TransformerModel& model, const Ids& prompt, int64_t limit) {
  const OracleFunction next = [&](std::span<const int64_t> start, std::span<const int64_t> prefix) {
    auto state = model.begin(1, 32);
    Ids tokens(start.begin(), start.end());
    tokens.insert(tokens.end(), prefix.begin(), prefix.end());
    const auto logits = model.step(model::step_input({tokens}), *state).logits[0][-1];
    const auto p = logits.softmax(0).contiguous();
    return std::vector<double>(p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel());
  };
  return enumerate(next, prompt, {.temperature = 1}, limit);
}

// 8000 draws and about 30 cells: a deviate above 4.5 happens once in 300,000 true tests; mistaking q for p gives
// deviates above 20 (the second test shows how far apart they are).
TEST(Tandem, SamplesOfTheVerifiedMethodAreDistributedAsThePrimarys) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly, 1.0, 5);
  const std::vector<Ids> prompts = {{2, 3, 4}, {2, 3, 4}};
  const auto expected = enumerate_outputs(*pair.primary, prompts[0], 3);
  DecodeOptions options = tandem_options("tandem-speed", 2, 2);
  options.temperature = 1;
  options.max_new_tokens = 3;
  options.num_samples = 4000;
  EXPECT_LT(chi_square_deviate(expected, count_sequences(Generator(pair.models(), options).generate(prompts))), 4.5);
  options.method = "tandem";
  options.free_token = false;
  EXPECT_GT(chi_square_deviate(expected, count_sequences(Generator(pair.models(), options).generate(prompts))), 20);
}

TEST(Tandem, SamplesOfTheStandaloneIdentityAreDistributedAsThePrimarys) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly, 0, 5);
  const std::vector<Ids> prompts = {{2, 3, 4}, {2, 3, 4}};
  const auto expected = enumerate_outputs(*pair.primary, prompts[0], 3);
  for (const bool free_token : {true, false}) {
    DecodeOptions options = tandem_options("tandem", 1, 2);
    options.temperature = 1;
    options.max_new_tokens = 3;
    options.num_samples = 4000;
    options.free_token = free_token;
    EXPECT_LT(chi_square_deviate(expected, count_sequences(Generator(pair.models(), options).generate(prompts))), 4.5);
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

TEST(Tandem, TokensAreToldOnceInOrder) {
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

// In an encoder-decoder blocks of outputs are the blocks of training, so one masked pass says the same.
TEST(Tandem, ForcedAlphaGoesInBlocksAsTheMaskOfTrainingDoes) {
  const at::NoGradGuard no_gradients;
  const TandemPair pair = random_pair(Kind::kEncoderDecoder);
  const std::vector<Ids> sources = {{5, 9, 14, 3, 1}};
  const std::vector<Ids> outputs = {{4, 19, 3, 8, 8, 21, 2, 1}};
  model::ForwardInput input;
  input.source = {at::tensor(sources[0], at::kLong).view({1, -1}), {5}};
  input.target = {at::tensor(Ids{0, 4, 19, 3, 8, 8, 21, 2}, at::kLong).view({1, -1}), {8}};
  input.hidden_layers = pair.secondary->config().tandem.layer_map;
  const auto primary = pair.primary->forward(input);
  const auto p = pair.primary->head(primary.hidden).softmax(-1);
  for (const int64_t block : {1, 3, 8}) {
    const model::PrimaryStates states{primary.layers, primary.encoder};
    model::ForwardInput own = input;
    own.hidden_layers.clear();
    own.primary = &states;
    own.block = block;
    const auto q = pair.secondary->head(pair.secondary->forward(own).hidden).softmax(-1);
    const auto forced =
        alpha_forced_tandem(*pair.primary, *pair.secondary, {sources, outputs}, {.temperature = 1}, block);
    EXPECT_EQ(forced.positions, 8);
    EXPECT_NEAR(forced.alpha, at::minimum(p, q).sum(-1).mean().item<double>(), 1e-9) << "block " << block;
    EXPECT_EQ(forced.agreement, p.argmax(-1).eq(q.argmax(-1)).to(at::kDouble).mean().item<double>());
  }
  // The default is the block of training, 3.
  EXPECT_EQ(alpha_forced_tandem(*pair.primary, *pair.secondary, {sources, outputs}, {.temperature = 1}).alpha,
            alpha_forced_tandem(*pair.primary, *pair.secondary, {sources, outputs}, {.temperature = 1}, 3).alpha);
}

TEST(Tandem, ForcedAlphaDoesNotDependOnTheTextsBesideIt) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind, kNoise);
    const auto sources = tandem_sources(kind);
    const auto outputs = ids_of(pair.run(tandem_options("greedy")));
    const Warping warping{.temperature = 1};
    const auto all = alpha_forced_tandem(*pair.primary, *pair.secondary, {sources, outputs}, warping);
    double sum = 0;
    int64_t positions = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::vector<Ids> source{sources[i]};
      const std::vector<Ids> output{outputs[i]};
      const auto one = alpha_forced_tandem(*pair.primary, *pair.secondary, {source, output}, warping);
      sum += one.alpha * static_cast<double>(one.positions);
      positions += one.positions;
    }
    EXPECT_EQ(all.positions, positions);
    EXPECT_NEAR(all.alpha, sum / static_cast<double>(positions), 1e-10);
    EXPECT_LT(all.alpha, 1);
  }
}

TEST(Tandem, CombinationsThatMakeNoSenseAreExplained) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  DecodeOptions options = tandem_options("tandem");
  options.free_token = false;
  options.window_rule = "fallback";
  EXPECT_THAT(message_of([&] { Generator(pair.models(), options); }), HasSubstr("may end before its first token"));
  GenerationModels plain;
  plain.target = pair.primary.get();
  plain.drafter = pair.primary.get();
  EXPECT_THAT(message_of([&] { Generator(plain, tandem_options("tandem-speed")); }), HasSubstr("Tandem secondary"));
  options = tandem_options("speculative");
  options.acceptance = "accept_all";
  options.free_token = false;
  EXPECT_THAT(message_of([&] { Generator(plain, options); }), HasSubstr("this drafter does not read it either"));
}

TEST(Tandem, APrimaryOfAnotherShapeOrVocabularyIsAnErrorThatNamesBoth) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  const auto other = tandem_primary_model(Kind::kDecoderOnly, 30);
  GenerationModels models = pair.models();
  models.target = other.get();
  const auto text = message_of([&] { Generator(models, tandem_options("tandem-speed")); });
  EXPECT_THAT(text, HasSubstr("24"));
  EXPECT_THAT(text, HasSubstr("30"));
  OracleModel oracle(oracle_info(24), random_oracle(24, 1));
  models.target = &oracle;
  EXPECT_THAT(message_of([&] { Generator(models, tandem_options("tandem")); }), HasSubstr("hidden states"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
