// What is measured of Tandem decoding by chance: distributions of samples, and alpha over given outputs.
#include <set>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "infer/forced/forced_alpha.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

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

ForcedAlpha forced_alpha(const TandemPair& pair, const ForcedBatch& texts, int64_t block = 0) {
  const GenerationModels models = pair.models();
  return models.drafter->forced_alpha(models.draft_target(), texts, {.temperature = 1}, block);
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
    const auto forced = forced_alpha(pair, {sources, outputs}, block);
    EXPECT_EQ(forced.positions, 8);
    EXPECT_NEAR(forced.alpha, at::minimum(p, q).sum(-1).mean().item<double>(), 1e-9) << "block " << block;
    EXPECT_EQ(forced.agreement, p.argmax(-1).eq(q.argmax(-1)).to(at::kDouble).mean().item<double>());
  }
  // The default is the block of training, 3.
  EXPECT_EQ(forced_alpha(pair, {sources, outputs}).alpha, forced_alpha(pair, {sources, outputs}, 3).alpha);
}

TEST(Tandem, ForcedAlphaDoesNotDependOnTheTextsBesideIt) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = identity_pair(kind, kNoise);
    const auto sources = tandem_sources(kind);
    const auto outputs = ids_of(pair.run(tandem_options("greedy")));
    const auto all = forced_alpha(pair, {sources, outputs});
    double sum = 0;
    int64_t positions = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::vector<Ids> source{sources[i]};
      const std::vector<Ids> output{outputs[i]};
      const auto one = forced_alpha(pair, {source, output});
      sum += one.alpha * static_cast<double>(one.positions);
      positions += one.positions;
    }
    EXPECT_EQ(all.positions, positions);
    EXPECT_NEAR(all.alpha, sum / static_cast<double>(positions), 1e-10);
    EXPECT_LT(all.alpha, 1);
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
