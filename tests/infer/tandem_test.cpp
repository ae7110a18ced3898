// Decoding with a Tandem secondary: identities with the primary, losslessness, caches that equal recomputation, and
// what does not fit together.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/acceptance/accept_all.h"
#include "infer/acceptance/exact.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/parts.h"
#include "infer/windows/fixed.h"
#include "tests/infer/oracle_fixtures.h"
#include "tests/infer/tandem_fixtures.h"
#include "tests/model/transformer_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kNoise = 0.15;
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
    const auto expected = ids_of(pairs[0].run(tandem_options("greedy")));
    for (const TandemPair& pair : pairs) {
      for (int64_t window = 1; window <= 8; ++window) {
        for (int64_t batch = 1; batch <= 6; ++batch) {
          const auto results = pair.run(tandem_options("tandem-speed", window, batch));
          ASSERT_EQ(ids_of(results), expected) << "window " << window << " batch " << batch;
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

// Everything the cache says, once more from scratch, row by row: projected representations of what is committed, then
// the secondary's own steps.
class CheckedDrafter : public TandemDrafter {
 public:
  CheckedDrafter(const TandemPair& pair, std::vector<Ids> sources)
      : TandemDrafter(*pair.secondary), pair_(pair), sources_(std::move(sources)) {}

  at::Tensor next_logits(const DraftRequest& request) override {
    at::Tensor logits = TandemDrafter::next_logits(request);
    for (size_t b = 0; b < request.rows.size(); ++b) {
      if (request.active[b] == 0) continue;
      auto state = scratch(request.rows[b]);
      Ids own{request.rows[b].tokens.back()};
      for (const at::Tensor& drafted : request.drafted) own.push_back(drafted[static_cast<int64_t>(b)].item<int64_t>());
      const auto expected = pair_.secondary->step(model::step_input({own}), *state).logits[0][-1];
      EXPECT_LT(model::difference(logits[static_cast<int64_t>(b)], expected), 1e-10);
      compare(*state, static_cast<int64_t>(b));
      ++logits_checked;
    }
    return logits;
  }

  void observe(const DraftObservation& observation) override {
    TandemDrafter::observe(observation);
    for (size_t b = 0; b < observation.rows.size(); ++b) {
      if (observation.rows[b].finished) continue;
      ASSERT_EQ(state().length(static_cast<int64_t>(b)), observation.rows[b].length() - 1);
      compare(*scratch(observation.rows[b]), static_cast<int64_t>(b));
      ++caches_checked;
    }
  }

  static int64_t logits_checked;
  static int64_t caches_checked;

 private:
  // A state of one row in which the primary has processed everything but the last committed token.
  std::unique_ptr<model::DecodeState> scratch(const Row& row) {
    const int64_t processed = row.length() - 1;
    const bool encodes = pair_.primary->info().encoder_decoder;
    model::EncoderStates encoder;
    if (encodes) {
      const Ids& source = sources_[row.line];
      encoder = pair_.primary->encode(
          {at::tensor(source.empty() ? Ids{0} : source, at::kLong).view({1, -1}), {std::ssize(source)}});
    }
    auto primary = encodes ? pair_.primary->begin(encoder, 64) : pair_.primary->begin(1, 64);
    auto state =
        encodes ? pair_.secondary->begin(pair_.secondary->project_encoder(encoder), 64) : pair_.secondary->begin(1, 64);
    if (processed == 0) return state;
    model::StepInput input = model::step_input({{row.tokens.begin(), row.tokens.end() - 1}});
    input.hidden_layers = pair_.secondary->config().tandem.layer_map;
    const auto hidden = pair_.primary->step(input, *primary).hidden;
    auto& own = model::transformer_state(*state);
    pair_.secondary->write_primary(hidden, own.append(std::vector<int64_t>{processed}, processed), own);
    return state;
  }

  void compare(model::DecodeState& expected, int64_t row) const {
    auto& other = model::transformer_state(expected);
    const int64_t length = other.length(0);
    ASSERT_EQ(state().length(row), length);
    for (int64_t layer = 0; layer < pair_.secondary->config().decoder_layers && length > 0; ++layer) {
      const auto own_keys = state().keys(layer)[row].narrow(1, 0, length);
      const auto own_values = state().values(layer)[row].narrow(1, 0, length);
      EXPECT_LT(model::difference(own_keys, other.keys(layer)[0].narrow(1, 0, length)), 1e-10);
      EXPECT_LT(model::difference(own_values, other.values(layer)[0].narrow(1, 0, length)), 1e-10);
    }
  }

  const TandemPair& pair_;
  std::vector<Ids> sources_;
};

int64_t CheckedDrafter::logits_checked = 0;
int64_t CheckedDrafter::caches_checked = 0;

TEST(Tandem, CachesEqualRecomputationAfterDraftsRollbacksAndCommits) {
  CheckedDrafter::logits_checked = 0;
  CheckedDrafter::caches_checked = 0;
  for (const Kind kind : kKinds) {
    for (const bool noisy : {true, false}) {
      const TandemPair pair = noisy ? identity_pair(kind, kNoise) : random_pair(kind);
      const auto sources = tandem_sources(kind);
      for (const bool standalone : {true, false}) {
        for (const bool free_token : {true, false}) {
          DecodeOptions options = tandem_options(standalone ? "tandem" : "tandem-speed", 3, 4);
          options.free_token = free_token;
          options.num_samples = 2;
          options.temperature = 0.7;
          options.max_new_tokens = 9;
          DraftParts parts = make_parts(options, std::make_unique<CheckedDrafter>(pair, sources));
          GenerationModels models;
          models.target = pair.primary.get();
          Generator(models, options, std::move(parts)).generate(sources);
        }
      }
    }
  }
  EXPECT_GT(CheckedDrafter::logits_checked, 300);
  EXPECT_GT(CheckedDrafter::caches_checked, 100);
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
