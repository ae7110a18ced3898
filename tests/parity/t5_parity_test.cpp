// T5 v1.0, v1.1 and mT5 compute what Transformers computes: logits, cached steps, gradients, greedy outputs, and model
// directories both ways.
#include <memory>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "tests/parity/model_comparison.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kT5Models = {"t5_v1_0", "t5_v1_1", "t5_tied_unscaled", "mt5"};
constexpr size_t kNewTokens = 14;  // NEW_TOKENS of tools/parity_t5.py

// Plain greedy decoding of one batch, written out: one token a step, rows cut at their first EOS.
std::vector<std::vector<int64_t>> greedy_by_steps(TransformerModel& model,
                                                  std::span<const std::vector<int64_t>> sources) {
  const auto rows = static_cast<int64_t>(sources.size());
  auto state = model.begin(model.encode(batch_of(sources)), static_cast<int64_t>(kNewTokens) + 1);
  std::vector<std::vector<int64_t>> outputs(sources.size());
  at::Tensor tokens = at::full({rows, 1}, model.info().decoder_start, at::kLong);
  for (size_t i = 0; i < kNewTokens; ++i) {
    StepInput input{.tokens = tokens,
                    .new_tokens = std::vector<int64_t>(sources.size(), 1),
                    .logits = Logits::kLast,
                    .hidden_layers = {}};
    tokens = model.step(input, *state).logits.argmax(-1);  // [B,1]
    for (size_t row = 0; row < sources.size(); ++row) {
      auto& output = outputs[row];
      if (output.empty() || output.back() != model.info().eos.front()) {
        output.push_back(tokens[static_cast<int64_t>(row)][0].item<int64_t>());
      }
    }
  }
  return outputs;
}

class TransformersParity : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (TransformersReference::available()) {
      reference_ = std::make_unique<TransformersReference>("parity_t5.py");
    }
  }
  static void TearDownTestSuite() { reference_.reset(); }

  void SetUp() override {
    if (!reference_) {
      GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
    }
  }

  static inline std::unique_ptr<TransformersReference> reference_;
};

TEST_F(TransformersParity, LogitsOfWholeSequencesAreEqual) {
  for (const std::string& name : kT5Models) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      const Reference reference = reference_->batch(name);
      EXPECT_LT(logits_difference(forward_logits(*model, reference), reference), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(TransformersParity, LogitsOfCachedStepsWithRollbacksAreEqual) {
  for (const std::string& name : kT5Models) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      const Reference reference = reference_->batch(name);
      EXPECT_LT(steps_difference(*model, reference), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(TransformersParity, GradientsOfEveryParameterAreEqual) {
  for (const std::string& name : kT5Models) {
    expect_equal_gradients(name, *load(reference_->directory(name), false), reference_->batch(name));
  }
}

TEST_F(TransformersParity, GreedyOutputsAreIdentical) {
  constexpr size_t kRows = 25;
  for (const std::string& name : kT5Models) {
    const auto model = load(reference_->directory(name), true);
    const GreedyReference wanted = reference_->greedy(name);
    ASSERT_EQ(wanted.sources.size(), 200);
    size_t ended = 0;
    for (size_t begin = 0; begin < wanted.sources.size(); begin += kRows) {
      const auto outputs = greedy_by_steps(*model, std::span(wanted.sources).subspan(begin, kRows));
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_EQ(outputs[i], wanted.outputs[begin + i]) << name << ", input " << begin + i;
        ended += outputs[i].back() == 1 ? 1 : 0;
      }
    }
    EXPECT_GT(ended, 0) << name << ": no output ends before the limit, so nothing was learnt about EOS";
    EXPECT_LT(ended, wanted.sources.size()) << name;
  }
}

// Transformers 4 wrote no scale_decoder_outputs: an untied head meant an unscaled output.
TEST_F(TransformersParity, ConfigurationsOfOlderVersionsMeanTheSame) {
  const TemporaryDirectory copy;
  fs::copy(reference_->directory("t5_v1_1"), copy.path(), fs::copy_options::recursive);
  auto config = load_json(copy / "config.json");
  for (const char* key : {"scale_decoder_outputs", "is_gated_act", "dense_act_fn", "architectures"}) {
    ASSERT_EQ(config.erase(key), 1) << key;
  }
  config["tie_word_embeddings"] = false;
  write_json(copy / "config.json", config);
  const auto model = load(copy.path(), false);
  const Reference reference = reference_->batch("t5_v1_1");
  EXPECT_LT(logits_difference(forward_logits(*model, reference), reference), kLogitsTolerance);
}

TEST_F(TransformersParity, HalfPrecisionDirectoriesLoad) {
  for (const auto& [name, dtype] : {std::pair{"t5_bf16", at::kBFloat16}, std::pair{"t5_fp16", at::kHalf}}) {
    const Reference reference = reference_->batch(name);
    const auto widened = load(reference_->directory(name), false);
    EXPECT_LT(logits_difference(forward_logits(*widened, reference), reference), kLogitsTolerance) << name;
    const auto plain = load(reference_->directory(name), false, dtype);
    EXPECT_EQ(plain->parameters().at("embedding.weight").scalar_type(), dtype);
    const bool fp16 = dtype == at::kHalf;
    EXPECT_EQ(plain->parameters().at("decoder.0.feed_forward.down.weight").scalar_type(), fp16 ? at::kFloat : dtype);
    const auto narrow = load(reference_->directory(name), true, dtype);
    EXPECT_EQ(narrow->info().dtype, fp16 ? dtype : at::kFloat);  // bf16 is the type of weights alone
    // bf16 keeps 8 bits of a number: a few hundredths after five layers.
    EXPECT_LT(steps_difference(*narrow, reference), fp16 ? 0.02 : 0.15) << name;
  }
}

TEST_F(TransformersParity, WhatWeSaveLoadsThereAndGeneratesTheSame) {
  const fs::path saved = reference_->root() / "saved";
  for (const std::string& name : kT5Models) {
    const auto model = load(reference_->directory(name), false);
    SaveOptions options;
    if (name == "t5_v1_0") {
      options.shard_bytes = 8'000;
      options.tokenizer = reference_->root() / "spiece.model";
      save_model(saved / "t5_v1_0-bf16", *model, {.dtype = at::kBFloat16, .tokenizer = {}, .generation = {}});
      save_model(saved / "t5_v1_0-fp16", *model, {.dtype = at::kHalf, .tokenizer = {}, .generation = {}});
    }
    save_model(saved / name, *model, options);
    const auto again = load(saved / name, false);
    for (const auto& [parameter, tensor] : model->parameters()) {
      EXPECT_TRUE(at::equal(tensor, again->parameters().at(parameter))) << name << ": " << parameter;
    }
  }
  EXPECT_EQ(reference_->check_saved(), "");
}

}  // namespace
}  // namespace draftsmith::model
