// Block prediction and deep Tandems decode with `greedy` and `sample`, as targets and as drafters: token for token what
// a slow reference writes, which passes over the whole text for every token, and distributed as it says.
#include <map>

#include <gmock/gmock.h>

#include "infer/drafters/model_drafter.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/block_decoders.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

using model::BlockDecoder;

// Large weights, so that texts vary.
model::TransformerConfig lively(model::TransformerConfig config) {
  config.initializer_range = 0.7;
  config.tied_head = false;
  return config;
}

std::vector<BlockDecoder> decoders(const model::TransformerConfig& config) {
  std::vector<BlockDecoder> all;
  for (const int64_t block : {2, 4}) {
    all.push_back(model::block_decoder(lively(config), block));
    all.push_back(model::deep_decoder(lively(config), model::smaller(lively(config)), block));
  }
  return all;
}

// Every prompt has a block.
const std::vector<Ids>& block_prompts() {
  static const std::vector<Ids> kPrompts = {
      {2, 3, 4, 5}, {9, 8, 7, 6, 5, 4, 3}, {11, 2, 13, 2, 17}, {7, 7, 7, 7, 7, 7}};
  return kPrompts;
}

std::vector<Ids> slow_greedy(const BlockDecoder& decoder, int64_t limit) {
  std::vector<Ids> outputs;
  for (Ids text : block_prompts()) {
    Ids output;
    while (std::ssize(output) < limit && (output.empty() || output.back() != kEos)) {
      output.push_back(decoder.next_logits(text).argmax().item<int64_t>());
      text.push_back(output.back());
    }
    outputs.push_back(output);
  }
  return outputs;
}

DecodeOptions block_options(const std::string& method, int64_t batch) {
  return {.method = method, .max_new_tokens = 17, .batch_size = batch};
}

class BlockModels : public ::testing::TestWithParam<model::TransformerConfig> {};

TEST_P(BlockModels, GreedyDecodingEqualsTheSlowReference) {
  for (const BlockDecoder& decoder : decoders(GetParam())) {
    const auto expected = slow_greedy(decoder, 17);
    for (const int64_t batch : {1, 3}) {
      GenerationModels models{.target = decoder.model.get()};
      EXPECT_EQ(ids_of(Generator(models, block_options("greedy", batch)).generate(block_prompts())), expected)
          << decoder.name << ", batch " << batch;
    }
  }
}

// Windows that are mostly rejected, and so rollbacks inside blocks; drafters with another block than the target's.
TEST_P(BlockModels, DraftAndAreDraftedForWithoutLoss) {
  const auto plain = model::varied_model(lively(GetParam()), 9);
  const BlockDecoder other = model::deep_decoder(lively(GetParam()), model::smaller(lively(GetParam())), 3, 21);
  const auto written = [](model::LanguageModel& target, const DecodeOptions& options, model::LanguageModel* drafter) {
    GenerationModels models{.target = &target};
    if (drafter != nullptr) models.drafter = as_drafter(*drafter);
    return ids_of(Generator(models, options).generate(block_prompts()));
  };
  const auto of_plain = written(*plain, block_options("greedy", 2), nullptr);
  DecodeOptions options = block_options("assisted", 3);
  options.window_rule = "fixed";
  options.window = 5;
  for (const BlockDecoder& decoder : decoders(GetParam())) {
    model::LanguageModel& model = *decoder.model;
    const auto alone = written(model, block_options("greedy", 2), nullptr);
    EXPECT_EQ(written(model, options, other.model.get()), alone) << decoder.name;
    EXPECT_EQ(written(model, options, &model), alone) << decoder.name << ", itself";
    EXPECT_EQ(written(*plain, options, &model), of_plain) << decoder.name << " drafts";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BlockModels, ::testing::Values(model::tiny_llama(3), model::tiny_gpt2()),
                         model::family_name);

// A deviate above kAlarm happens once in a million true tests (distribution_tests.h).
TEST(BlockModelSamples, AreDistributedAsTheSlowReferenceSays) {
  model::TransformerConfig config = lively(model::tiny_llama(2));
  config.vocabulary = 5;
  const auto small = model::varied_model(config, 9);
  for (const BlockDecoder& decoder : {model::block_decoder(config, 2), model::deep_decoder(config, config, 2)}) {
    const OracleFunction next = [&](std::span<const int64_t> prompt, std::span<const int64_t> prefix) {
      Ids text(prompt.begin(), prompt.end());
      text.insert(text.end(), prefix.begin(), prefix.end());
      const at::Tensor p = decoder.next_logits(text).softmax(0).contiguous();
      return std::vector<double>(p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel());
    };
    const std::vector<Ids> sources = {{2, 3, 4}, {3, 2}};
    std::vector<std::map<Ids, double>> expected;
    for (const Ids& source : sources) expected.push_back(enumerate(next, source, {.temperature = 1, .top_k = 4}, 3));
    for (const char* method : {"sample", "speculative"}) {
      DecodeOptions options = block_options(method, 2);
      options.temperature = 1;
      options.top_k = 4;
      options.window = 3;
      options.max_new_tokens = 3;
      options.num_samples = 1000;
      GenerationModels models{.target = decoder.model.get(), .drafter = as_drafter(*small)};
      const auto results = Generator(models, options).generate(sources);
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto counts = count_sequences(std::span(results).subspan(i * 1000, 1000));
        EXPECT_LT(chi_square_deviate(expected[i], counts), kAlarm) << decoder.name << ", " << method << ", " << i;
      }
    }
  }
}

TEST(BlockModelPrompts, HoldABlock) {
  const BlockDecoder blocks = model::block_decoder(model::tiny_llama(2), 4);
  const auto plain = model::varied_model(model::tiny_llama(2), 3);
  GenerationModels models{.target = blocks.model.get()};
  const std::vector<Ids> sources = {{2, 3, 4, 5}, {2, 3, 4}};
  EXPECT_THAT(error_of([&] { Generator(models, block_options("greedy", 2)).generate(sources); }),
              AllOf(HasSubstr("input 2"), HasSubstr("at least 4 tokens"), HasSubstr("3 tokens")));
  models.target = plain.get();
  models.drafter = as_drafter(*blocks.model);
  EXPECT_THAT(error_of([&] { Generator(models, block_options("assisted", 2)).generate(sources); }),
              HasSubstr("at least 4 tokens"));
  const BlockDecoder deep = model::deep_decoder(model::tiny_llama(2), model::tiny_llama(2), 4);
  models.target = deep.model.get();
  models.drafter = nullptr;
  EXPECT_EQ(Generator(models, block_options("greedy", 2)).generate(std::vector<Ids>{{2}}).size(), 1U);
}

}  // namespace
}  // namespace draftsmith::infer::testing
