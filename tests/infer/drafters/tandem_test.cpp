// Decoding with a Tandem secondary, verified and standing alone: identities with the primary, losslessness,
// distributions of samples, alpha over given outputs, caches that equal recomputation, padded vocabularies, and what
// does not fit.
#include "model/models/tandem.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/loop/decode_loop.h"
#include "infer/windows/window_rules.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

class TandemOf : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TandemOf, ::testing::ValuesIn(kKinds), [](const auto& kind) {
  return kind.param == Kind::kEncoderDecoder ? "EncoderDecoder" : "DecoderOnly";
});

TEST_P(TandemOf, IdentitySecondaryIsAlwaysAccepted) {
  const TandemPair pair = identity_pair(GetParam());
  const auto expected = ids_of(pair.run(tandem_options("greedy")));
  for (const int64_t window : {1, 3, 7}) {
    const auto results = pair.run(tandem_options("tandem-speed", window, 3));
    EXPECT_EQ(ids_of(results), expected);
    for (const auto& [ids, stats, error] : results) {
      EXPECT_EQ(stats.accepted, stats.drafted);
      EXPECT_EQ(stats.target_runs, divide_up(std::ssize(ids), window + 1)) << "window " << window;
    }
  }
}

TEST_P(TandemOf, SpeedEqualsGreedyWithEverySecondary) {
  std::vector<TandemPair> pairs;
  pairs.push_back(identity_pair(GetParam(), kNoise));
  pairs.push_back(random_pair(GetParam()));
  const auto expected = ids_of(pairs[0].run(tandem_options("greedy")));
  for (const TandemPair& pair : pairs) {
    for (const int64_t window : {1, 3, 8}) {
      for (int64_t batch = 1; batch <= 6; ++batch) {
        ASSERT_EQ(ids_of(pair.run(tandem_options("tandem-speed", window, batch))), expected)
            << "window " << window << " batch " << batch;
      }
    }
  }
  const DecodeStats noisy = total(pairs[0].run(tandem_options("tandem-speed", 4, 3)));
  EXPECT_GT(noisy.accepted, noisy.drafted / 5);
  EXPECT_LT(noisy.accepted, noisy.drafted);
}

TEST_P(TandemOf, OtherMethodsAndWindowsDraftWithItToo) {
  expect_lossless_otherwise(identity_pair(GetParam(), kNoise), 3);
}

// Limits of one token and inside a block; processors act on the target's free tokens and on drafts alike.
TEST_P(TandemOf, LengthLimitsAndGenerationSettingsActOnFreeTokensAndDraftsAlike) {
  const TandemPair pair = identity_pair(GetParam());
  GenerationModels models = pair.models();
  models.generation.emplace();
  models.generation->eos_ids = pair.primary->info().eos;
  models.generation->no_repeat_ngram_size = 2;
  models.generation->repetition_penalty = 1.3;
  models.generation->suppress = {4, 9};
  for (const int64_t limit : {1, 2, 5, 18}) {
    const auto with = [&](DecodeOptions options, bool free_token) {
      options.max_new_tokens = limit;
      options.min_new_tokens = std::min<int64_t>(limit, 6);
      options.free_token = free_token;
      return ids_of(Generator(models, options).generate(tandem_sources(GetParam())));
    };
    const auto expected = with(tandem_options("greedy"), true);
    for (const char* method : {"tandem", "tandem-speed"}) {
      for (const bool free_token : {true, false}) {
        EXPECT_EQ(with(tandem_options(method, 3, 4), free_token), expected) << method << " limit " << limit;
      }
    }
  }
}

TEST_P(TandemOf, StandaloneIdentityWritesThePrimarysOutputAtAnyWindow) {
  const TandemPair pair = identity_pair(GetParam());
  const auto expected = ids_of(pair.run(tandem_options("greedy")));
  for (const bool free_token : {true, false}) {
    for (const int64_t window : {1, 2, 3, 6}) {
      for (const int64_t batch : {1, 3, 8}) {
        DecodeOptions options = tandem_options("tandem", window, batch);
        options.free_token = free_token;
        const auto results = pair.run(options);
        EXPECT_EQ(ids_of(results), expected) << "window " << window << " batch " << batch << " free " << free_token;
        for (const auto& [ids, stats, error] : results) {
          const int64_t tokens = std::ssize(ids);
          EXPECT_EQ(stats.target_runs, free_token ? divide_up(tokens, window + 1) : divide_up(tokens, window) - 1);
          EXPECT_EQ(stats.draft_runs, stats.drafted);
          EXPECT_EQ(stats.drafted, free_token ? tokens - stats.target_runs : tokens);
          EXPECT_EQ(stats.cut, 0);
        }
      }
    }
  }
  for (const char* window : {"dynamic", "fallback"}) {
    DecodeOptions options = tandem_options("tandem", 3, 3);
    options.window_rule = window;
    options.confidence = 0.3;
    EXPECT_EQ(ids_of(pair.run(options)), expected) << window;
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

TEST_P(TandemOf, StandingAloneAsksThePrimaryOnlyForWhatIsUsed) {
  const TandemPair pair = random_pair(GetParam());
  RecordingPrimary primary(pair.primary->config(), pair.primary->parameters());
  GenerationModels models = pair.models();
  models.target = &primary;
  for (const bool free_token : {true, false}) {
    primary.steps.clear();
    DecodeOptions options = tandem_options("tandem", 3, 4);
    options.free_token = free_token;
    Generator(models, options).generate(tandem_sources(GetParam()));
    ASSERT_FALSE(primary.steps.empty());
    for (const auto& step : primary.steps) {
      EXPECT_EQ(step.hidden_layers, (std::vector<int64_t>{0, 2}));
      EXPECT_LE(step.tokens.size(1), 8);
      EXPECT_NE(step.logits, model::Logits::kAll);
      if (!free_token) {
        EXPECT_EQ(step.logits, model::Logits::kNone);
      }
    }
  }
}

// 8000 draws and about 30 cells: a deviate above 4.5 happens once in 300,000 true tests; mistaking q for p gives
// deviates above 20, as the second expectation shows.
TEST(Tandem, SamplesAreDistributedAsThePrimarys) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly, 1.0, 5), same = identity_pair(Kind::kDecoderOnly, 0, 5);
  const auto deviate = [](const TandemPair& sampled, const char* method, bool free_token) {
    DecodeOptions options = tandem_options(method, 2, 2);
    options.free_token = free_token;
    return sample_pair(sampled, options).deviate;
  };
  EXPECT_LT(deviate(pair, "tandem-speed", true), 4.5);
  EXPECT_GT(deviate(pair, "tandem", false), 20);
  EXPECT_LT(deviate(same, "tandem", true), 4.5);
  EXPECT_LT(deviate(same, "tandem", false), 4.5);
}

ForcedAlpha forced_alpha(const TandemPair& pair, const ForcedBatch& texts, int64_t block = 0) {
  const GenerationModels models = pair.models();
  return models.drafter->forced_alpha(models.draft_target(), texts, {.temperature = 1}, block);
}

// In an encoder-decoder blocks of outputs are the blocks of training, so one masked pass says the same.
TEST(Tandem, ForcedAlphaGoesInBlocksAsTheMaskOfTrainingDoes) {
  const at::NoGradGuard no_gradients;
  const TandemPair pair = random_pair(Kind::kEncoderDecoder);
  const std::vector<Ids> sources = {{5, 9, 14, 3, 1}}, outputs = {{4, 19, 3, 8, 8, 21, 2, 1}};
  model::ForwardInput input{.source = {at::tensor(sources[0], at::kLong).view({1, -1}), {5}},
                            .target = {at::tensor(Ids{0, 4, 19, 3, 8, 8, 21, 2}, at::kLong).view({1, -1}), {8}},
                            .hidden_layers = pair.secondary->config().tandem.layer_map};
  const auto primary = pair.primary->forward(input);
  const auto p = pair.primary->head(primary.hidden).softmax(-1);
  for (const int64_t block : {1, 3, 8}) {
    const model::PrimaryStates states{primary.layers, primary.encoder};
    model::ForwardInput own = input;
    own.hidden_layers.clear();
    own.primary = &states;
    own.block = block;
    const auto q = pair.secondary->head(pair.secondary->forward(own).hidden).softmax(-1);
    const auto forced = forced_alpha(pair, {sources, outputs}, block);
    EXPECT_EQ(forced.positions, 8);
    EXPECT_NEAR(forced.alpha, at::minimum(p, q).sum(-1).mean().item<double>(), 1e-9) << "block " << block;
    EXPECT_EQ(forced.agreement, p.argmax(-1).eq(q.argmax(-1)).to(at::kDouble).mean().item<double>());
  }
  // The default is the block of training, 3.
  EXPECT_EQ(forced_alpha(pair, {sources, outputs}).alpha, forced_alpha(pair, {sources, outputs}, 3).alpha);
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
      EXPECT_LT(difference(logits[static_cast<int64_t>(b)], expected), 1e-10);
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

  static inline int64_t logits_checked = 0, caches_checked = 0;

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
      const auto own_keys = model::cached(state(), layer)[row].narrow(1, 0, length);
      const auto own_values = model::cached(state(), layer, &model::LayerCache::values)[row].narrow(1, 0, length);
      EXPECT_LT(difference(own_keys, model::cached(other, layer)[0].narrow(1, 0, length)), 1e-10);
      EXPECT_LT(difference(own_values, model::cached(other, layer, &model::LayerCache::values)[0].narrow(1, 0, length)),
                1e-10);
    }
  }

  const TandemPair& pair_;
  std::vector<Ids> sources_;
};

TEST_P(TandemOf, CachesEqualRecomputationAfterDraftsRollbacksAndCommits) {
  CheckedDrafter::logits_checked = 0;
  CheckedDrafter::caches_checked = 0;
  const TandemPair pair = random_pair(GetParam());
  const auto sources = tandem_sources(GetParam());
  for (const bool standalone : {true, false}) {
    for (const bool free_token : {true, false}) {
      DecodeOptions options = tandem_options(standalone ? "tandem" : "tandem-speed", 3, 4);
      options.free_token = free_token;
      options.num_samples = 2;
      options.temperature = 0.7;
      options.max_new_tokens = 9;
      DraftParts parts = make_parts(options, std::make_unique<CheckedDrafter>(pair, sources));
      Generator({.target = pair.primary.get()}, options, std::move(parts)).generate(sources);
    }
  }
  EXPECT_GT(CheckedDrafter::logits_checked, 30);
  EXPECT_GT(CheckedDrafter::caches_checked, 10);
}

// Pairs of one tokenizer whose vocabularies are padded to different sizes, as Pythia's are.
constexpr int64_t kTokens = 24, kPadded = 30;

// The model with further ids, whose logits would often be the largest.
std::unique_ptr<model::TransformerModel> with_padding(const model::TransformerModel& model) {
  model::TransformerConfig config = model.config();
  config.vocabulary = kPadded;
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, value] : model.parameters()) {
    const bool rows = name.starts_with("embedding") || name.starts_with("head");
    parameters[name] =
        rows && value.size(0) == kTokens ? at::cat({value, 3 * value.narrow(0, 5, kPadded - kTokens)}) : value.clone();
  }
  auto padded = std::make_unique<model::TransformerModel>(config, std::move(parameters));
  padded->requires_grad(false);
  return padded;
}

// The secondary is the primary itself but for padding.
TandemPair padded_pair(Kind kind, bool larger_primary) {
  const auto plain = tandem_primary_model(kind, kTokens);
  TandemPair pair{.primary = larger_primary ? with_padding(*plain) : tandem_primary_model(kind, kTokens)};
  const auto ordinary = larger_primary ? tandem_primary_model(kind, kTokens) : with_padding(*plain);
  pair.secondary = model::make_tandem_secondary(
      *ordinary, *pair.primary, {.layer_map = {0, 1, 2}, .projections = model::ProjectionStart::kIdentity});
  pair.secondary->requires_grad(false);
  pair.secondary->pack();
  pair.primary->pack();
  return pair;
}

GenerationModels models_with(const TandemPair& pair, const data::Tokenizer* tokenizer) {
  GenerationModels models = pair.models();
  models.drafter = tandem_drafter(pair.secondary, tokenizer);
  models.target_tokenizer = tokenizer;
  return models;
}

TEST_P(TandemOf, PaddedPairsDecodeAsThoseOfOneSize) {
  const Pieces tokenizer(kTokens);
  const auto sources = tandem_sources(GetParam());
  const auto expected = ids_of(identity_pair(GetParam()).run(tandem_options("greedy")));
  for (const bool larger_primary : {true, false}) {
    SCOPED_TRACE(larger_primary);
    const TandemPair pair = padded_pair(GetParam(), larger_primary);
    const GenerationModels models = models_with(pair, &tokenizer);
    for (const char* method : {"tandem-speed", "tandem"}) {
      EXPECT_EQ(ids_of(Generator(models, tandem_options(method, 3, 3)).generate(sources)), expected) << method;
    }
    DecodeOptions sampling = tandem_options("tandem-speed", 3, 3);
    sampling.temperature = 1;
    const auto sampled = Generator(models, sampling).generate(sources);
    EXPECT_EQ(total(sampled).accepted, total(sampled).drafted);  // q = p
    for (const Ids& ids : ids_of(sampled))
      EXPECT_TRUE(std::ranges::all_of(ids, [](int64_t id) { return id < kTokens; }));
    if (larger_primary) continue;
    const ForcedAlpha alpha =
        models.drafter->forced_alpha(models.draft_target(), {sources, expected, {}}, {1, 0, 1}, 2);
    EXPECT_NEAR(alpha.alpha, 1, 1e-9);
  }
}

TEST(Tandem, PairsThatDoNotFitAreExplained) {
  const TandemPair pair = padded_pair(Kind::kDecoderOnly, true);
  const Pieces tokenizer(kTokens), other(kTokens + 1, "other");
  const auto error = [&](const data::Tokenizer* of_target, const data::Tokenizer* of_secondary) {
    GenerationModels models = models_with(pair, of_secondary);
    models.target_tokenizer = of_target;
    return error_of([&] { Generator(models, tandem_options("tandem-speed")); });
  };
  EXPECT_THAT(error(nullptr, nullptr),
              ::testing::AllOf(HasSubstr("vocabularies of different sizes"), HasSubstr("24"), HasSubstr("30")));
  EXPECT_THAT(error(&tokenizer, &other), HasSubstr("different pieces"));
  EXPECT_EQ(error(&tokenizer, &tokenizer), "no error");
  GenerationModels models = pair.models();
  OracleModel oracle(oracle_info(24), random_oracle(24, 1));
  models.target = &oracle;
  EXPECT_THAT(error_of([&] { Generator(models, tandem_options("tandem")); }), HasSubstr("reads states of the model"));
}

TEST(Tandem, CombinationsThatMakeNoSenseAreExplained) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  DecodeOptions options = tandem_options("tandem");
  options.free_token = false;
  options.window_rule = "fallback";
  EXPECT_THAT(error_of([&] { Generator(pair.models(), options); }), HasSubstr("may end before its first token"));
  const GenerationModels plain{.target = pair.primary.get(), .drafter = as_drafter(*pair.primary)};
  EXPECT_THAT(error_of([&] { Generator(plain, tandem_options("tandem-speed")); }), HasSubstr("Tandem secondary"));
  options = tandem_options("speculative");
  options.acceptance = "accept_all";
  options.free_token = false;
  EXPECT_THAT(error_of([&] { Generator(plain, options); }), HasSubstr("this drafter does not read it either"));
}

TEST(Tandem, AnOracleReplaysLosslessDecodingAlone) {
  const TandemPair pair = identity_pair(Kind::kDecoderOnly);
  const AcceptedLengths lengths;
  GenerationModels models = pair.models();
  models.accepted_lengths = &lengths;
  DecodeOptions options = tandem_options("tandem");
  options.window_rule = "oracle";
  EXPECT_THAT(error_of([&] { Generator(models, options); }), HasSubstr("this acceptance lets them"));
  options.method = "bild";
  EXPECT_THAT(error_of([&] { Generator(models, options); }), HasSubstr("this acceptance lets them"));
  options.method = "speculative";
  EXPECT_EQ(error_of([&] { Generator(models, options); }), "no error");
}

}  // namespace
}  // namespace draftsmith::infer::testing
