// Prompts are processed once and shared by their samples, tokens are told as they are committed; prompts near the end
// of the context are refused, cut at the left, or skipped.
#include <set>

#include <gmock/gmock.h>

#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "infer/loop/rows.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tensors.h"
#include "tests/support/token_ids.h"

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
  std::vector<int64_t> rows, widths;
};

// A decoder-only oracle with so many positions; 0: any number.
model::ModelInfo prompt_info(int64_t positions = 0) {
  auto info = oracle_info(5, at::kDouble, false);
  info.max_positions = positions;
  info.name = "small";
  return info;
}

TEST(Prefill, TargetAndDrafterReadEachPromptOnceForAllItsSamples) {
  const auto function = random_oracle(5, 6, 1.5, {kEos});
  RecordingOracle target(prompt_info(), function);
  RecordingOracle drafter(prompt_info(), mixture(function, random_oracle(5, 7, 1.5, {kEos}), 0.4));
  GenerationModels models{.target = &target, .drafter = as_drafter(drafter)};
  DecodeOptions options{.method = "speculative", .window = 2, .max_new_tokens = 6, .num_samples = 4, .batch_size = 2};
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
    Row row{.tokens = prompt};
    rows.insert(rows.end(), 3, row);
  }
  const auto shared = prefill(model, {}, rows, {120, 3}).state;
  const auto apart = prefill(model, {}, rows, {120, 1}).state;
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
  const auto state = prefill(model, {}, rows, {4 * most, 1}).state;
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
  model::StepInput whole{.new_tokens = {519, 299, 0}, .logits = model::Logits::kNone, .hidden_layers = {0, 2}};
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
  model::StepInput next{.tokens = at::full({3, 1}, 9, at::kLong)};
  next.new_tokens.assign(3, 1);
  const at::Tensor logits = model.step(next, *chunked.state).logits;
  EXPECT_LT(difference(logits, model.step(next, *at_once).logits), 1e-11);
}

TEST(OnTokens, TellsEveryTokenOnceInItsRowsOrderAndItsEnd) {
  const auto function = random_oracle(5, 6, 1.2);
  OraclePair oracles({function, mixture(function, random_oracle(5, 7, 1.2), 0.4), 5});
  const std::vector<Ids> sources = {{2}, {2, 2, 2}, {3, 3}, {}, {4, 4, 4, 4}};
  for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
    DecodeOptions options{.method = method, .max_new_tokens = 9, .num_samples = 2, .batch_size = 2};
    std::vector<Ids> told(10);
    std::vector<int> ends(10, 0);
    const auto results =
        Generator(oracles.models(), options)
            .generate(sources, 0, {}, [&](size_t output, std::span<const int64_t> tokens, bool finished) {
              EXPECT_FALSE(tokens.empty());
              EXPECT_EQ(ends[output], 0);
              told[output].insert(told[output].end(), tokens.begin(), tokens.end());
              ends[output] += finished ? 1 : 0;
            });
    EXPECT_EQ(told, ids_of(results)) << method;
    EXPECT_THAT(ends, Each(1)) << method;
  }
}

const Context kTen{10, "the model m"};

PromptFit fit(int64_t prompt, int64_t wanted, LongPrompts policy, const Context& context = kTen) {
  return fit_prompt(prompt, wanted, context, policy, "input 3");
}

TEST(ContextFit, NewTokensEndWithTheContext) {
  EXPECT_EQ(fit(1'000'000, 128, LongPrompts::kError, {}).room, 128);
  EXPECT_EQ(fit(6, 4, LongPrompts::kError).room, 4);
  EXPECT_EQ(fit(6, 5, LongPrompts::kError).room, 4);
  EXPECT_EQ(fit(9, 5, LongPrompts::kSkip).room, 1);
  EXPECT_FALSE(fit(9, 4, LongPrompts::kSkip).skipped);
  EXPECT_TRUE(fit(10, 1, LongPrompts::kSkip).skipped);
  EXPECT_EQ(fit(10, 1, LongPrompts::kSkip).room, 0);
  const std::string message = error_of([] { fit(10, 1, LongPrompts::kError); });
  for (const char* part : {"input 3: the prompt leaves no room", "the model m", "fewer than 10 tokens", "10 tokens",
                           "truncate-left or skip"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ContextFit, TruncationMakesRoomForWhatIsWantedUpToHalfTheContext) {
  EXPECT_EQ(fit(25, 3, LongPrompts::kTruncateLeft).dropped, 18);  // the last 7 stay
  EXPECT_EQ(fit(25, 3, LongPrompts::kTruncateLeft).room, 3);
  EXPECT_EQ(fit(8, 3, LongPrompts::kTruncateLeft).dropped, 1);  // it had left room for two
  EXPECT_EQ(fit(7, 3, LongPrompts::kTruncateLeft).dropped, 0);
  EXPECT_EQ(fit(25, 128, LongPrompts::kTruncateLeft).dropped, 20);
  EXPECT_EQ(fit(25, 128, LongPrompts::kTruncateLeft).room, 5);
  EXPECT_EQ(fit(3, 128, LongPrompts::kTruncateLeft).room, 7);
  EXPECT_THAT(error_of([] { fit(2, 1, LongPrompts::kTruncateLeft, {1, "m"}); }), HasSubstr("no room"));
}

std::vector<GenerationResult> continued(const std::vector<Ids>& prompts, DecodeOptions options, int64_t context = 8) {
  OracleModel target(prompt_info(context), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models{.target = &target};
  return Generator(models, std::move(options)).generate(prompts, 40);
}

TEST(ContextFit, GenerationStopsAtTheContextAndNamesThePromptThatFillsIt) {
  DecodeOptions options{.max_new_tokens = 6};
  const auto results = continued({{2}, {2, 3, 4, 3, 2}}, options);
  EXPECT_EQ(results[0].ids.size(), 6u);
  EXPECT_EQ(results[1].ids.size(), 3u);
  const std::string message = error_of([&] { continued({{2}, {2, 3, 4, 3, 2, 2, 2, 2, 2}}, options); });
  EXPECT_THAT(message, HasSubstr("input 42"));  // first_line 40, counted from 1
  EXPECT_THAT(message, HasSubstr("9 tokens"));
}

TEST(ContextFit, ABosStaysInFrontOfATruncatedPrompt) {
  OracleModel target(prompt_info(6), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models{.target = &target};
  models.generation.emplace();
  models.generation->bos = 0;
  models.generation->eos_ids = {kEos};
  DecodeOptions options{.max_new_tokens = 3, .long_prompts = "truncate-left"};
  Generator generator(models, options);
  const auto results =
      generator.generate(std::vector<Ids>{{0, 4, 2, 2, 3, 4}, {0, 3, 4}, {3, 4, 2, 2, 3, 4}, {2, 3, 4}});
  EXPECT_EQ(results[0].ids, results[1].ids);
  EXPECT_EQ(results[2].ids, results[3].ids);
  EXPECT_NE(results[0].ids, results[2].ids);
}

TEST(ContextFit, SkippedPromptsKeepTheirPlaceAndAreReported) {
  DecodeOptions options{.max_new_tokens = 3, .long_prompts = "skip", .num_samples = 2};
  OracleModel target(prompt_info(8), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models{.target = &target};
  Generator generator(models, options);
  const std::vector<Ids> prompts = {Ids(9, 2), {2}, Ids(8, 3), {3}, Ids(20, 4)};
  std::vector<size_t> lengths;
  std::multiset<size_t> finished;
  const auto results = generator.generate(
      prompts, 0,
      [&](size_t first, std::span<const GenerationResult> part) {
        EXPECT_EQ(first, lengths.size());
        for (const auto& result : part) lengths.push_back(result.ids.size());
      },
      [&](size_t output, std::span<const int64_t> /*tokens*/, bool ended) {
        if (ended) finished.insert(output);
      });
  EXPECT_THAT(finished, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(lengths, ElementsAre(0, 0, 3, 3, 0, 0, 3, 3, 0, 0));
  EXPECT_EQ(results[0].stats.target_runs, 0);
  std::vector<bool> skipped;
  for (const PromptFit& fit : generator.fit(prompts)) skipped.push_back(fit.skipped);
  EXPECT_THAT(skipped, ElementsAre(true, false, true, false, true));
  EXPECT_EQ(generator.generate(std::vector<Ids>{Ids(9, 2)}).size(), 2u);  // nothing but skipped ones
}

// A maximal length of the model's settings is a context, which the options lift.
TEST(ContextFit, AMaximalLengthThatIsTooShortSaysHowItIsLifted) {
  OracleModel target(prompt_info(20), random_oracle(5, 6, 1.5, {kEos}));
  GenerationModels models{.target = &target};
  models.generation.emplace();
  models.generation->eos_ids = {kEos};
  models.generation->max_length = 6;
  const auto refusal = [&](const DecodeOptions& options, int64_t prompt) {
    return error_of([&] { Generator(models, options).fit(std::vector<Ids>{Ids(static_cast<size_t>(prompt), 2)}); });
  };
  EXPECT_EQ(Generator(models, {}).generate(std::vector<Ids>{{2, 3}})[0].ids.size(), 4u);
  EXPECT_THAT(refusal({}, 7), HasSubstr("truncate-left or skip; --max-new-tokens lifts this limit"));
  DecodeOptions options{.max_new_tokens = 2};
  EXPECT_EQ(refusal(options, 7), "no error");
  EXPECT_THAT(refusal(options, 20), ::testing::AllOf(HasSubstr("the model small"), ::testing::Not(HasSubstr("lifts"))));
}

}  // namespace
}  // namespace draftsmith::infer::testing
