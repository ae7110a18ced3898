// Drafters with fewer positions than their targets draft while they can and leave the rest to the target: a drafter
// never shortens or changes an output, whatever the method, the batch and the prompts.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/routers.h"
#include "infer/windows/window_rules.h"
#include "tests/support/captured_log.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

constexpr int64_t kNewTokens = 20;

// A model that refuses tokens and sources beyond its positions.
class BoundedOracle : public OracleModel {
 public:
  using OracleModel::OracleModel;
  model::EncoderStates encode(const model::TokenBatch& source) override {
    for (const int64_t length : source.lengths) require(length);
    return OracleModel::encode(source);
  }
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    for (int64_t b = 0; b < state.rows(); ++b) require(state.length(b) + input.new_tokens[static_cast<size_t>(b)]);
    return OracleModel::step(input, state);
  }

 private:
  void require(int64_t tokens) const {
    if (tokens > info().max_positions) throw std::logic_error("a token beyond the model's positions");
  }
};

model::ModelInfo bounded_info(int64_t vocabulary, int64_t positions, bool encoder_decoder) {
  model::ModelInfo info = oracle_info(vocabulary);
  info.encoder_decoder = encoder_decoder;
  info.max_positions = positions;
  info.name = "small";
  return info;
}

DecodeOptions greedy_by(const std::string& method, const std::string& window, int64_t batch) {
  DecodeOptions options{.method = method, .temperature = 0, .fallback = 0.3, .max_new_tokens = kNewTokens};
  if (!window.empty()) options.window_rule = window;
  if (window == "dynamic") options.confidence = 0.3;
  if (window == "fixed" || (window.empty() && method == "speculative")) options.window = 4;
  options.batch_size = batch;
  return options;
}

// Methods and windows; "bild" keeps drafts that are not the target's.
constexpr std::pair<const char*, const char*> kMethods[] = {{"speculative", ""},
                                                            {"speculative", "dynamic"},
                                                            {"speculative", "entropy"},
                                                            {"speculative", "fallback"},
                                                            {"assisted", "fixed"},
                                                            {"assisted", "dynamic"},
                                                            {"bild", ""},
                                                            {"bild", "fixed"}};

class Positions : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Positions, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "EncoderDecoder" : "DecoderOnly"; });

TEST_P(Positions, EveryMethodWritesWhatTheTargetWritesWithoutTheDrafter) {
  constexpr int64_t kPositions = 12;
  const auto function = random_oracle(6, 3, 1.5, {kEos});
  OracleModel target(bounded_info(6, 0, GetParam()), function);
  BoundedOracle drafter(bounded_info(6, kPositions, GetParam()),
                        mixture(function, random_oracle(6, 4, 1.5, {kEos}), 0.3));
  const std::vector<Ids> sources = {Ids(3, 2), Ids(20, 3), Ids(10, 4), Ids(11, 2), Ids(12, 3), Ids(13, 5), Ids(14, 2)};
  GenerationModels models{.target = &target};
  const auto expected = ids_of(Generator(models, greedy_by("greedy", "", 1)).generate(sources));
  models.drafter = as_drafter(drafter);
  CapturedLog log;
  for (const auto& [method, window] : kMethods) {
    for (const int64_t batch : {1, 3, 7}) {
      SCOPED_TRACE(std::string(method) + " " + window + " batch " + std::to_string(batch));
      const auto results = Generator(models, greedy_by(method, window, batch)).generate(sources);
      for (size_t i = 0; i < sources.size(); ++i) {
        EXPECT_EQ(std::ssize(results[i].ids), kNewTokens);
        if (std::string(method) != "bild") {
          EXPECT_EQ(results[i].ids, expected[i]);
        }
        const bool reads = std::ssize(sources[i]) <= kPositions;
        EXPECT_EQ(results[i].stats.draft_runs > 0, reads) << "source " << i;
      }
      EXPECT_GT(total(results).accepted, 0);
    }
  }
  EXPECT_EQ(log.warnings(), 1U) << log.text();
  EXPECT_THAT(log.text(), AllOf(HasSubstr("the drafter small has 12 positions"), HasSubstr("the rest alone")));
}

// Routers' data are collected as far as the drafter's positions go.
TEST_P(Positions, ADrafterThatIsWatchedEndsWhereItsPositionsDo) {
  const auto function = random_oracle(6, 3, 1.5, {kEos});
  OracleModel target(bounded_info(6, 0, GetParam()), function);
  BoundedOracle drafter(bounded_info(6, 12, GetParam()), function);
  const std::vector<Ids> sources = {Ids(3, 2), Ids(20, 3)};
  GenerationModels models{.target = &target};
  const auto expected = ids_of(Generator(models, greedy_by("greedy", "", 1)).generate(sources));
  models.drafter = as_drafter(drafter);
  const DecodeOptions options = greedy_by("speculative", "", 2);
  RouterCollector collector(2);
  Generator watched(models, options, collector.watched(models.drafter->make(models.draft_target()), 4));
  EXPECT_EQ(ids_of(watched.generate(sources)), expected);
  EXPECT_GT(collector.drain().size(), 0);
}

// False alarms: one in a million for each of the four sources and each rule (kAlarm).
TEST(PositionsOfSamples, RowsWithAndWithoutRoomKeepTheTargetsDistribution) {
  const Case oracles = resembling_case();
  OracleModel target(oracle_info(4), oracles.target);
  BoundedOracle drafter(bounded_info(4, 2, true),
                        oracles.drafter);  // drafts two tokens, and none for the longest source
  const GenerationModels models{.target = &target, .drafter = as_drafter(drafter)};
  const CapturedLog log;
  for (const char* acceptance : {"rejection", "block"}) {
    DecodeOptions options = sampling(1.0, 3);
    options.acceptance = acceptance;
    const auto results = Generator(models, options).generate(sampled_sources());
    EXPECT_LT(worst_deviate(oracles.target, options, results), kAlarm) << acceptance;
    EXPECT_GT(total(results).accepted, 0);
  }
}

std::unique_ptr<model::TransformerModel> real(model::TransformerConfig config, int64_t positions, int64_t vocabulary) {
  config.max_positions = positions;
  config.vocabulary = vocabulary;
  auto model = std::make_unique<model::TransformerModel>(config, 1);
  model->requires_grad(false);
  make_lively(*model, 5, 0.1);
  model->to(at::kCPU, at::kDouble);
  model->pack();
  return model;
}

// The models of one tokenizer pad its 28 ids to 31, 36 and 29.
TEST(PositionsOfModels, DraftersOfAllFamiliesEndAndTheTargetGoesOn) {
  const Pieces tokenizer(28);
  const auto target = real(model::tiny_llama(), 64, 31);
  std::vector<std::unique_ptr<model::TransformerModel>> drafters;
  drafters.push_back(real(model::tiny_llama(), 24, 31));
  drafters.push_back(real(model::tiny_gpt2(), 24, 36));
  drafters.push_back(real(model::tiny_neox(), 24, 29));
  drafters.push_back(real(model::tiny_bloom(), 24, 31));
  std::vector<Ids> prompts;
  for (const size_t length : {4U, 20U, 23U, 24U, 25U, 40U}) {
    prompts.emplace_back();
    for (size_t t = 0; t < length; ++t) prompts.back().push_back(static_cast<int64_t>(3 + t * 7 % 23));
  }
  GenerationModels models{.target = target.get(), .target_tokenizer = &tokenizer};
  const auto expected = ids_of(Generator(models, greedy_by("greedy", "", 1)).generate(prompts));
  const CapturedLog log;
  for (const auto& drafter : drafters) {
    models.drafter = as_drafter(*drafter, &tokenizer);
    for (const int64_t batch : {1, 6}) {
      for (const char* method : {"assisted", "speculative"}) {
        const auto results = Generator(models, greedy_by(method, "", batch)).generate(prompts);
        EXPECT_EQ(ids_of(results), expected) << drafter->info().name << " " << method << " batch " << batch;
      }
    }
  }
  EXPECT_EQ(log.warnings(), drafters.size());
}

// The secondary, or the drafter that shares the encoder, with so many positions.
TandemPair bounded(TandemPair pair, int64_t positions) {
  model::TransformerConfig config = pair.secondary->config();
  config.max_positions = positions;
  pair.secondary = std::make_shared<model::TransformerModel>(config, pair.secondary->parameters());
  pair.secondary->requires_grad(false);
  return pair;
}

TEST_P(Positions, TandemsAndSharedEncodersLeaveTheRestToTheTarget) {
  const Kind kind = GetParam() ? Kind::kEncoderDecoder : Kind::kDecoderOnly;
  const CapturedLog log;
  for (const int64_t positions : {1, 6, 9}) {
    const TandemPair pair = bounded(identity_pair(kind), positions);
    const auto expected = ids_of(pair.run(tandem_options("greedy")));
    for (const int64_t batch : {1, 3, 8}) {
      SCOPED_TRACE("positions " + std::to_string(positions) + " batch " + std::to_string(batch));
      EXPECT_EQ(ids_of(pair.run(tandem_options("tandem-speed", 4, batch))), expected);
      for (const bool free_token : {true, false}) {
        DecodeOptions options = tandem_options("tandem", 3, batch);
        options.free_token = free_token;
        EXPECT_EQ(ids_of(pair.run(options)), expected) << "standing alone, free " << free_token;
      }
      if (!GetParam()) continue;
      const TandemPair shared = bounded(identity_shared_encoder(kNoise), positions);
      EXPECT_EQ(ids_of(shared.run(tandem_options("speculative", 4, batch))), expected);
    }
  }
}

TEST(PositionsOfTexts, AlphaIsMeasuredWhereTheDrafterCanDraft) {
  const auto function = random_oracle(5, 3);
  const auto other = mixture(function, random_oracle(5, 4), 0.3);
  OracleModel target(bounded_info(5, 0, false), function), whole(bounded_info(5, 0, false), other);
  BoundedOracle drafter(bounded_info(5, 6, false), other);
  const std::vector<Ids> sources = {{2, 3}, Ids(6, 3), Ids(7, 2)}, outputs = {Ids(9, 4), Ids(3, 2), Ids(2, 3)};
  const std::vector<Ids> read = {{2, 3}, Ids(6, 3)}, predicted = {Ids(5, 4), Ids(1, 2)};
  const Warping warping{.temperature = 1};
  const ForcedAlpha found = measure_forced_alpha({target, drafter}, {sources, outputs}, warping);
  const ForcedAlpha expected = measure_forced_alpha({target, whole}, {read, predicted}, warping);
  EXPECT_EQ(found.positions, 6);
  EXPECT_DOUBLE_EQ(found.alpha, expected.alpha);
}

TEST(PositionsOfEncoders, InputsBeyondTheTargetsAreRefusedOrSkipped) {
  OracleModel target(bounded_info(5, 4, true), random_oracle(5, 1));
  GenerationModels models{.target = &target};
  DecodeOptions options;
  const std::vector<Ids> sources = {{2, 3, 2, 3}, Ids(5, 2)};
  EXPECT_THAT(error_of([&] { Generator(models, options).generate(sources); }),
              AllOf(HasSubstr("input 2"), HasSubstr("at most 4 tokens"), HasSubstr("5 tokens")));
  options.long_prompts = "skip";
  const auto results = Generator(models, options).generate(sources);
  EXPECT_GE(results[0].ids.size(), 1U);
  EXPECT_TRUE(results[1].ids.empty());
}

}  // namespace
}  // namespace draftsmith::infer::testing
