// Prompts are processed once and shared by their samples; tokens are told as they are committed.
#include "infer/loop/prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::Each;
using ::testing::Le;

model::TransformerModel small_llama(uint64_t seed) {
  model::TransformerConfig config = model::tiny_llama();
  config.initializer_range = 0.6;
  config.max_positions = 200;
  model::TransformerModel model(config, seed);
  auto parameters = model.parameters();
  for (auto& [name, tensor] : parameters) tensor = tensor.detach().to(at::kDouble);
  return {model.config(), parameters};
}

// A model that notes the tokens it is given in each step.
class RecordingOracle : public OracleModel {
 public:
  using OracleModel::OracleModel;
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    rows.push_back(input.tokens.size(0));
    widths.push_back(input.tokens.size(1));
    return OracleModel::step(input, state);
  }
  std::vector<int64_t> rows;
  std::vector<int64_t> widths;
};

model::ModelInfo prompt_info() {
  auto info = oracle_info(5);
  info.encoder_decoder = false;
  return info;
}

TEST(Prefill, TargetAndDrafterReadEachPromptOnceForAllItsSamples) {
  const auto function = random_oracle(5, 6, 1.5, {kEos});
  RecordingOracle target(prompt_info(), function);
  RecordingOracle drafter(prompt_info(), mixture(function, random_oracle(5, 7, 1.5, {kEos}), 0.4));
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  DecodeOptions options;
  options.method = "speculative";
  options.num_samples = 4;
  options.batch_size = 2;
  options.window = 2;
  options.max_new_tokens = 6;
  Generator(models, options).generate(std::vector<Ids>{Ids(20, 2), Ids(30, 3)});
  for (const RecordingOracle* model : {&target, &drafter}) {
    EXPECT_EQ(model->rows.front(), 2);
    EXPECT_EQ(model->widths.front(), 29);
    const std::vector<int64_t> later(model->widths.begin() + 1, model->widths.end());
    EXPECT_THAT(later, Each(Le(3)));
    EXPECT_EQ(model->rows[1], 8);
  }
}

TEST(Prefill, SharedPromptsGiveEveryRowTheStateItWouldHaveAlone) {
  model::TransformerModel model = small_llama(3);
  const std::vector<Ids> prompts = {{4, 5, 6, 7, 8, 9, 10}, {11}, Ids(90, 12)};  // a cache that grew, one that is empty
  std::vector<Row> rows;
  for (const Ids& prompt : prompts) {
    Row row;
    row.tokens = prompt;
    rows.insert(rows.end(), 3, row);
  }
  const auto shared = begin_state(model, {}, rows, {120, 3});
  const auto apart = begin_state(model, {}, rows, {120, 1});
  ASSERT_EQ(shared->rows(), 9);
  for (int64_t step = 0; step < 3; ++step) {
    model::StepInput input;
    std::vector<int64_t> tokens;
    for (int64_t row = 0; row < 9; ++row)
      tokens.push_back(step == 0 ? rows[size_t(row)].tokens.back() : 3 + row + step);
    input.tokens = to_device(tokens, {9, 1}, at::kCPU);
    input.new_tokens.assign(9, 1);
    const auto ours = model.step(input, *shared).logits;
    EXPECT_LT(difference(ours, model.step(input, *apart).logits), 1e-11) << "step " << step;
  }
  for (int64_t row = 0; row < 9; ++row) EXPECT_EQ(shared->length(row), apart->length(row));
}

TEST(Prefill, NoStepProcessesMoreThanAChunkOfAPrompt) {
  const int64_t most = prefill_chunk(at::kCPU);
  RecordingOracle model(prompt_info(), random_oracle(5, 6, 1.5, {kEos}));
  std::vector<Row> rows(2);
  rows[0].tokens = Ids(static_cast<size_t>(3 * most + 2), 2);  // 3 * most + 1 tokens are processed
  rows[1].tokens = Ids(static_cast<size_t>(most), 3);
  const auto state = begin_state(model, {}, rows, {4 * most, 1});
  EXPECT_EQ(model.widths.size(), 4U);
  EXPECT_THAT(model.widths, Each(Le(most)));
  EXPECT_EQ(state->length(0), 3 * most + 1);
  EXPECT_EQ(state->length(1), most - 1);
}

TEST(Prefill, ChunksGiveTheLogitsAndHiddenStatesOfOneStep) {
  model::TransformerConfig config = small_llama(3).config();
  config.max_positions = 2000;
  model::TransformerModel model(config, small_llama(3).parameters());
  std::vector<Row> rows(3);
  for (size_t b = 0; b < rows.size(); ++b) {
    const size_t length = std::vector<size_t>{520, 300, 1}[b];
    for (size_t i = 0; i < length; ++i) rows[b].tokens.push_back(3 + static_cast<int64_t>((i * (b + 7)) % 13));
  }
  const Prefill chunked = prefill(model, {}, rows, {540, 1}, {0, 2});
  model::StepInput whole;
  whole.new_tokens = {519, 299, 0};
  whole.hidden_layers = {0, 2};
  whole.logits = model::Logits::kNone;
  std::vector<int64_t> tokens(size_t{3} * 519, 0);
  for (size_t b = 0; b < 3; ++b)
    std::copy(rows[b].tokens.begin(), rows[b].tokens.end() - 1, tokens.begin() + int64_t(b) * 519);
  whole.tokens = to_device(tokens, {3, 519}, at::kCPU);
  const auto at_once = model.begin(3, 540);
  const auto hidden = model.step(whole, *at_once).hidden;
  ASSERT_EQ(chunked.prompt_hidden.size(), 2U);
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t known = whole.new_tokens[size_t(b)];
    EXPECT_EQ(chunked.state->length(b), known);
    for (size_t i = 0; i < hidden.size() && known > 0; ++i) {
      const auto of_row = [&](const at::Tensor& all) { return all[b].narrow(0, 0, known); };
      EXPECT_LT(difference(of_row(chunked.prompt_hidden[i]), of_row(hidden[i])), 1e-11) << b << " " << i;
    }
  }
  model::StepInput next;
  next.tokens = at::full({3, 1}, 9, at::kLong);
  next.new_tokens.assign(3, 1);
  const at::Tensor logits = model.step(next, *chunked.state).logits;
  EXPECT_LT(difference(logits, model.step(next, *at_once).logits), 1e-11);
}

TEST(Prefill, SamplesOfASeedAreThoseOfSeparateRuns) {
  // The random stream depends on line and sample alone, so sample 0 of N equals the only sample.
  model::TransformerModel target = small_llama(3);
  model::TransformerModel drafter = small_llama(4);
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  const std::vector<Ids> prompts = {{4, 5, 6}, {7}, Ids(40, 9)};
  for (const char* method : {"sample", "speculative"}) {
    DecodeOptions options;
    options.method = method;
    options.temperature = 1;
    options.max_new_tokens = 12;
    options.batch_size = 3;
    const auto one = Generator(models, options).generate(prompts);
    options.num_samples = 5;
    const auto many = Generator(models, options).generate(prompts);
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(many[5 * i].ids, one[i].ids) << method << " " << i;
    EXPECT_NE(many[0].ids, many[1].ids);
  }
}

TEST(OnTokens, TellsEveryTokenOnceInItsRowsOrderAndItsEnd) {
  const auto function = random_oracle(5, 6, 1.2);
  OracleModel target(oracle_info(5), function);
  OracleModel drafter(oracle_info(5), mixture(function, random_oracle(5, 7, 1.2), 0.4));
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(drafter);
  const std::vector<Ids> sources = {{2}, {2, 2, 2}, {3, 3}, {}, {4, 4, 4, 4}};
  for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
    DecodeOptions options;
    options.method = method;
    options.batch_size = 2;
    options.num_samples = 2;
    options.max_new_tokens = 9;
    std::vector<Ids> told(10);
    std::vector<int> ends(10, 0);
    const auto results =
        Generator(models, options)
            .generate(sources, 0, {}, [&](size_t output, std::span<const int64_t> tokens, bool finished) {
              EXPECT_FALSE(tokens.empty());
              EXPECT_EQ(ends[output], 0);
              told[output].insert(told[output].end(), tokens.begin(), tokens.end());
              ends[output] += finished ? 1 : 0;
            });
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(told[i], results[i].ids) << method;
      EXPECT_EQ(ends[i], 1) << method;
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
