// Encoders and steps of packed models on CPUs against those of plain ones, for every family and form of a step.
#include <algorithm>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/signals.h"
#include "model/transformer/cpu_pass.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

// Returns forms of sublayers that tiny_forms() lacks: final norms of rows that still have a norm before them, residuals
// that are scaled where they are parallel or normed, one head of keys, and windows that end inside of a block of keys.
std::vector<TransformerConfig> mixed_forms() {
  TransformerConfig bart = tiny_forms().front();
  bart.family = "BART with final norms";
  bart.final_norm = bart.embedding_norm = true;
  bart.activation = Activation::kGelu;
  bart.residual_scale = 0.7;
  TransformerConfig neox = tiny_neox();
  neox.family = "scaled GPT-NeoX";
  neox.residual_scale = 0.6;
  TransformerConfig olmo = tiny_llama();
  olmo.family = "scaled OLMo-2";
  olmo.norm_place = NormPlace::kAfterSublayer;
  olmo.query_key_norm = QueryKeyNorm::kWidth;
  olmo.kv_heads = 1;
  olmo.residual_scale = 0.6;
  TransformerConfig windows = tiny_llama();
  windows.family = "Llama with windows";
  windows.window = 100;
  windows.window_layers = {0, 1};
  return {bart, neox, olmo, windows};
}

std::vector<TransformerConfig> families() {
  std::vector<TransformerConfig> all{tiny_t5(), tiny_mt5(), tiny_llama(), tiny_gpt2(), tiny_neox(), tiny_bloom()};
  for (const TransformerConfig& form : tiny_forms()) all.push_back(form);
  for (const TransformerConfig& form : mixed_forms()) all.push_back(form);
  TransformerConfig wide = t5_config({.vocabulary = 150, .width = 96, .heads = 3, .head_width = 32, .ff_width = 200});
  all.push_back(wide);
  wide.draft_vocabulary = {{0, 1, 2, 5, 9, 11, 100, 149}, 2};
  all.push_back(wide);
  return all;
}

std::unique_ptr<DecodeState> state_of(TransformerModel& model, const std::vector<int64_t>& source_lengths,
                                      int64_t capacity = 40) {
  if (!model.config().encoder_decoder) return model.begin(std::ssize(source_lengths), capacity);
  return model.begin(model.encode(random_batch(source_lengths, 20, 3)), capacity);
}

// Logits and hidden states of steps of many lengths, with a rollback and rows that leave.
std::vector<at::Tensor> walk(TransformerModel& model) {
  const auto state = state_of(model, {5, 0, 9});
  std::vector<at::Tensor> all;
  const auto step = [&](const std::vector<std::vector<int64_t>>& tokens, Logits logits) {
    StepInput input = step_input(tokens, logits);
    input.hidden_layers = {1, 0};
    const StepOutput output = model.step(input, *state);
    for (size_t b = 0; b < tokens.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const auto count = std::ssize(tokens[b]);
      if (count == 0) continue;
      for (const at::Tensor& hidden : output.hidden) all.push_back(hidden[row].narrow(0, 0, count).clone());
      if (logits != Logits::kNone) {
        all.push_back(output.logits[row].narrow(0, 0, logits == Logits::kLast ? 1 : count).clone());
      }
    }
  };
  step({{3, 4, 5, 6, 7}, {8}, {9, 10}}, Logits::kAll);
  step({{3}, {4}, {5}}, Logits::kLast);
  state->rollback(std::vector<int64_t>{4, 1, 3});
  step({{11, 12}, {}, {13, 14, 15}}, Logits::kLast);
  step({{16}, {17, 18}, {}}, Logits::kNone);
  state->select_rows(std::vector<int64_t>{2, 0});
  step({{3}, {4}}, Logits::kAll);
  step({std::vector<int64_t>(12, 5), {6, 7}}, Logits::kAll);
  return all;
}

TEST(CpuStep, EqualsThePlainModelsSteps) {
  for (const TransformerConfig& config : families()) {
    const auto model = varied_model(config, 7, at::kFloat);
    const std::vector<at::Tensor> plain = walk(*model);
    model->pack();
    const std::vector<at::Tensor> packed = walk(*model);
    ASSERT_EQ(plain.size(), packed.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(at::allclose(plain[i], packed[i], 1e-4, 1e-4)) << config.family << " " << i;
    }
  }
}

TEST(CpuStep, GivesTheSameBitsWhateverTheThreads) {
  const int before = at::get_num_threads();
  for (const TransformerConfig& config : families()) {
    const auto model = tiny_model(config, at::kFloat);
    model->pack();
    at::set_num_threads(1);
    const std::vector<at::Tensor> alone = walk(*model);
    at::set_num_threads(3);
    const std::vector<at::Tensor> together = walk(*model);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(at::equal(alone[i], together[i])) << config.family << " " << i;
  }
  at::set_num_threads(before);
}

// Returns the tokens [begin, begin + count) of a prompt.
std::vector<int64_t> many_tokens(int64_t begin, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = begin; i < begin + count; ++i) tokens.push_back(2 + i * i % 19);
  return tokens;
}

// Returns the families with room for prompts.
std::vector<TransformerConfig> families_of_prompts() {
  std::vector<TransformerConfig> all = families();
  for (TransformerConfig& config : all) config.max_positions = 400;
  return all;
}

// Hidden states and logits of two rows' prompts in steps of these lengths, the second row shorter, and of two more
// tokens.
std::vector<at::Tensor> long_steps(TransformerModel& model, const std::vector<int64_t>& lengths) {
  const auto state = state_of(model, {300, 0}, 400);
  std::vector<at::Tensor> first, second;
  for (int64_t begin = 0; const int64_t length : lengths) {
    const int64_t present = std::clamp<int64_t>(290 - begin, 0, length);
    StepInput input = step_input({many_tokens(begin, length), many_tokens(begin, present)});
    input.hidden_layers = {1};
    const StepOutput output = model.step(input, *state);
    first.push_back(at::cat({output.hidden[0][0], output.logits[0]}, 1));
    second.push_back(at::cat({output.hidden[0][1], output.logits[1]}, 1).narrow(0, 0, present));
    begin += length;
  }
  return {at::cat(first), at::cat(second), model.step(step_input({{5, 6}, {7}}, Logits::kLast), *state).logits.clone()};
}

TEST(CpuStep, OfAPromptEqualsThePlainModels) {
  for (const TransformerConfig& config : families_of_prompts()) {
    const auto model = tiny_model(config, at::kDouble);
    const std::vector<at::Tensor> exact = long_steps(*model, {300});
    model->to(at::kCPU, at::kFloat);
    for (const bool packed : {false, true}) {
      if (packed) model->pack();
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{300}, {33, 267}, {257, 2, 41}}) {
        const std::vector<at::Tensor> found = long_steps(*model, lengths);
        for (size_t i = 0; i < exact.size(); ++i) {
          EXPECT_TRUE(at::allclose(exact[i], found[i].to(at::kDouble), 1e-4, 1e-4))
              << config.family << " " << i << " " << packed << " " << lengths.size();
        }
      }
    }
  }
}

TEST(CpuStep, GivesATokenOfAPromptTheSameBitsInEveryChunk) {
  for (const TransformerConfig& config : families_of_prompts()) {
    const auto model = tiny_model(config, at::kFloat);
    model->pack();
    const auto prompt = [&](int64_t chunk) {
      const auto state = state_of(*model, {270}, 300);
      const std::vector<int64_t> tokens = many_tokens(0, 300);
      std::vector<at::Tensor> logits;
      for (auto begin = tokens.begin(); begin != tokens.end(); begin += chunk) {
        logits.push_back(
            model->step(step_input({std::vector<int64_t>(begin, begin + chunk)}), *state).logits[0].clone());
      }
      return at::cat(logits);
    };
    const at::Tensor whole = prompt(300);
    for (const int64_t chunk : {50, 100, 150}) EXPECT_TRUE(at::equal(prompt(chunk), whole)) << config.family << chunk;
  }
}

// A step of many tokens is computed layer by layer, so that a stop is heard in between.
TEST(CpuStep, OfManyTokensGivesARowTheSameBitsAlone) {
  constexpr int64_t kRows = 4, kTokens = 270;  // more than a thousand together
  for (const TransformerConfig& config : families_of_prompts()) {
    const auto model = tiny_model(config, at::kFloat);
    model->pack();
    const auto step = [&](int64_t rows) {
      const auto count = static_cast<size_t>(rows);
      const auto state = state_of(*model, std::vector<int64_t>(count, 30), 300);
      const std::vector<std::vector<int64_t>> tokens(count, many_tokens(0, kTokens));
      return model->step(step_input(tokens), *state).logits.clone();
    };
    const at::Tensor alone = step(1)[0];
    EXPECT_TRUE(at::equal(step(kRows)[0], alone)) << config.family;
    int64_t points = 0;
    const LongWork work({}, [&] { ++points; });
    EXPECT_TRUE(at::equal(step(kRows)[0], alone)) << config.family;
    EXPECT_GE(points, config.decoder_layers) << config.family;
  }
}

// Hidden states and logits of two parts of a step, which one program each computes where the model is packed.
TEST(CpuStep, PartsGiveWhatTheWholeStepGives) {
  for (const TransformerConfig& config : families()) {
    for (const bool packed : {false, true}) {
      const auto model = tiny_model(config, at::kFloat);
      if (packed) model->pack();
      const int64_t all = config.decoder_layers;
      StepInput input = step_input({{3, 4, 5}, {}, {9, 10}});
      input.hidden_layers = {1, all};
      const auto whole_state = state_of(*model, {5, 0, 9});
      const StepOutput whole = model->step(input, *whole_state);

      const auto parts_state = state_of(*model, {5, 0, 9});
      auto& state = dynamic_cast<DecoderState&>(*parts_state);
      const std::vector<int64_t> first{1}, last{all, 1};
      const StepOutput lower = model->run_part({.layers = {0, 1}, .tokens = input.tokens, .hidden_layers = first},
                                               state.append(input.new_tokens, 3), state);
      EXPECT_FALSE(lower.logits.defined());
      const StepOutput upper = model->run_part(
          {.layers = {1, all}, .hidden = lower.hidden.front(), .logits = Logits::kAll, .hidden_layers = last},
          state.append(input.new_tokens, 3, 1), state);
      const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
        return at::equal(a[0], b[0]) && at::equal(a[2].narrow(0, 0, 2), b[2].narrow(0, 0, 2));
      };
      EXPECT_TRUE(same(lower.hidden.front(), whole.hidden[0])) << config.family << packed;
      EXPECT_TRUE(same(upper.hidden[0], whole.hidden[1])) << config.family << packed;
      EXPECT_TRUE(same(upper.hidden[1], whole.hidden[0])) << config.family << packed;
      EXPECT_TRUE(same(upper.logits, whole.logits)) << config.family << packed;
      for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(parts_state->length(row), whole_state->length(row));
    }
  }
}

TEST(CpuStep, LogitsThatAreKeptStay) {
  const auto model = tiny_model(tiny_t5(), at::kFloat);
  model->pack();
  const auto state = state_of(*model, {4});
  const at::Tensor kept = model->step(step_input({{3}}), *state).logits, copy = kept.clone();
  const void* memory = model->step(step_input({{4}}), *state).logits.const_data_ptr();
  EXPECT_TRUE(at::equal(kept, copy));
  EXPECT_NE(memory, kept.const_data_ptr());
  EXPECT_EQ(model->step(step_input({{5}}), *state).logits.const_data_ptr(), memory) << "nobody has the last ones";
}

std::vector<TransformerConfig> encoders() {
  const TransformerConfig wide =
      t5_config({.vocabulary = 23, .width = 96, .heads = 3, .head_width = 32, .ff_width = 200, .encoder_layers = 2});
  std::vector<TransformerConfig> all{tiny_t5(), tiny_mt5(), wide};
  for (const std::vector<TransformerConfig>& forms : {tiny_forms(), mixed_forms()}) {
    for (TransformerConfig config : forms) {
      if (!config.encoder_decoder) continue;
      config.max_positions = 1000;
      all.push_back(config);
    }
  }
  return all;
}

TEST(CpuEncoder, EqualsThePlainModels) {
  for (const TransformerConfig& config : encoders()) {
    const auto model = varied_model(config, 7, at::kFloat);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{7}, {1}, {2}, {40, 3, 0, 17}, {257, 4, 256, 255}, {300}, {1000, 300, 1}}) {
      const TokenBatch source = random_batch(lengths, 23, 1);
      model->to(at::kCPU, at::kFloat);  // unpacks
      const at::Tensor plain = model->encode(source).hidden;
      model->pack();
      const at::Tensor packed = model->encode(source).hidden;
      ASSERT_EQ(plain.sizes(), packed.sizes());
      EXPECT_TRUE(packed.isfinite().all().item<bool>());
      for (size_t b = 0; b < lengths.size(); ++b) {
        const auto row = static_cast<int64_t>(b);
        EXPECT_TRUE(at::allclose(plain[row].narrow(0, 0, lengths[b]), packed[row].narrow(0, 0, lengths[b]), 1e-4, 1e-5))
            << config.family << " " << b;
      }
    }
  }
}

TEST(CpuEncoder, GivesARowTheSameBitsAlone) {
  for (const TransformerConfig& config : encoders()) {
    const auto model = tiny_model(config, at::kFloat);
    model->pack();
    const std::vector<int64_t> lengths{30, 3, 17, 1, 600, 257};
    const TokenBatch source = random_batch(lengths, 23, 2);
    const at::Tensor together = model->encode(source).hidden;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const at::Tensor alone = model->encode(single(source, row)).hidden[0];
      EXPECT_TRUE(at::equal(alone, together[row].narrow(0, 0, lengths[b]))) << config.family;
    }
  }
}

}  // namespace
}  // namespace draftsmith::model
