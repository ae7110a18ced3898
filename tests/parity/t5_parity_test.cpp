// T5 v1.0, v1.1 and mT5 compute what Transformers computes: logits, cached steps, gradients, greedy outputs, and model
// directories both ways.
#include <algorithm>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/checkpoint.h"
#include "model/families/family.h"
#include "tests/parity/transformers_reference.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kModels = {"t5_v1_0", "t5_v1_1", "t5_tied_unscaled", "mt5"};
constexpr double kLogitsTolerance = 1e-4;
constexpr double kGradientTolerance = 1e-3;
constexpr size_t kNewTokens = 14;  // NEW_TOKENS of tools/parity_t5.py

std::unique_ptr<TransformerModel> load(const fs::path& directory, bool pack, at::ScalarType dtype = at::kFloat) {
  return load_model(directory, {.device = at::kCPU, .dtype = dtype, .pack = pack});
}

at::Tensor forward_logits(TransformerModel& model, const Reference& reference) {
  const ForwardOutput output =
      model.forward({.source = reference.source, .target = reference.target, .hidden_layers = {}});
  return model.head(output.hidden);
}

// The largest relative difference over the rows' own positions.
double logits_difference(const at::Tensor& logits, const Reference& reference) {
  double worst = 0;
  for (size_t row = 0; row < reference.target.lengths.size(); ++row) {
    const auto b = static_cast<int64_t>(row);
    const int64_t length = reference.target.lengths[row];
    worst =
        std::max(worst, relative_difference(logits[b].narrow(0, 0, length), reference.logits[b].narrow(0, 0, length)));
  }
  return worst;
}

// Feeds the reference's target in steps of 0..8 tokens a row, each row its own number, with rollbacks between them.
class RandomSteps {
 public:
  RandomSteps(TransformerModel& model, const Reference& reference)
      : model_(model), reference_(reference), rows_(reference.target.tokens.size(0)) {
    state_ = model_.begin(model_.encode(reference.source), reference.target.tokens.size(1) + 8);
  }

  double worst_difference() {
    double worst = 0;
    for (int round = 0; !done() && round < 2000; ++round) {
      worst = std::max(worst, step());
      if (round % 3 == 1) {
        roll_back();
      }
    }
    EXPECT_TRUE(done()) << "the steps never reached the end";
    return worst;
  }

 private:
  int64_t remaining(int64_t row) const {
    return reference_.target.lengths[static_cast<size_t>(row)] - state_->length(row);
  }

  bool done() const {
    for (int64_t row = 0; row < rows_; ++row) {
      if (remaining(row) > 0) {
        return false;
      }
    }
    return true;
  }

  int64_t draw(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  double step() {
    const int64_t tokens = 1 + draw(7);
    StepInput input;
    input.tokens = at::full({rows_, tokens}, 3, at::kLong);
    std::vector<int64_t> before;
    for (int64_t row = 0; row < rows_; ++row) {
      before.push_back(state_->length(row));
      const int64_t count = std::min(remaining(row), draw(tokens));
      input.new_tokens.push_back(count);
      input.tokens[row].narrow(0, 0, count).copy_(reference_.target.tokens[row].narrow(0, before.back(), count));
    }
    const at::Tensor logits = model_.step(input, *state_).logits;  // [B,L,V]
    double worst = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      const auto index = static_cast<size_t>(row);
      const int64_t count = input.new_tokens[index];
      if (count > 0) {
        worst = std::max(worst, relative_difference(logits[row].narrow(0, 0, count),
                                                    reference_.logits[row].narrow(0, before[index], count)));
      }
    }
    return worst;
  }

  void roll_back() {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < rows_; ++row) {
      lengths.push_back(std::max<int64_t>(0, state_->length(row) - draw(6)));
    }
    state_->rollback(lengths);
  }

  TransformerModel& model_;
  const Reference& reference_;
  int64_t rows_;
  std::unique_ptr<DecodeState> state_;
  std::mt19937 random_{3};
};

TokenBatch batch_of(std::span<const std::vector<int64_t>> rows) {
  size_t width = 0;
  TokenBatch batch;
  for (const auto& row : rows) {
    width = std::max(width, row.size());
    batch.lengths.push_back(static_cast<int64_t>(row.size()));
  }
  batch.tokens = at::zeros({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}, at::kLong);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < rows[row].size(); ++i) {
      batch.tokens[static_cast<int64_t>(row)][static_cast<int64_t>(i)] = rows[row][i];
    }
  }
  return batch;
}

// Plain greedy decoding of one batch, written out: one token a step, rows cut at their first EOS.
std::vector<std::vector<int64_t>> greedy(TransformerModel& model, std::span<const std::vector<int64_t>> sources) {
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
      reference_ = std::make_unique<TransformersReference>();
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
  for (const std::string& name : kModels) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      const Reference reference = reference_->batch(name);
      EXPECT_LT(logits_difference(forward_logits(*model, reference), reference), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(TransformersParity, LogitsOfCachedStepsWithRollbacksAreEqual) {
  for (const std::string& name : kModels) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      const Reference reference = reference_->batch(name);
      EXPECT_LT(RandomSteps(*model, reference).worst_difference(), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(TransformersParity, GradientsOfEveryParameterAreEqual) {
  for (const std::string& name : kModels) {
    const auto model = load(reference_->directory(name), false);
    const Reference reference = reference_->batch(name);
    model->requires_grad(true);
    const at::Tensor logits = forward_logits(*model, reference);
    const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), reference.labels.flatten());
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), reference.loss, 1e-4 * reference.loss) << name;
    ASSERT_EQ(model->parameters().size(), reference.grads.size()) << name;
    const Family& family = family_named(model->config().family);
    for (const auto& [parameter, tensor] : model->parameters()) {
      const std::string stored = family.stored_name(parameter, model->config());
      ASSERT_EQ(reference.grads.count(stored), 1) << name << ": " << stored;
      ASSERT_TRUE(tensor.grad().defined()) << name << ": " << parameter;
      EXPECT_LT(relative_difference(tensor.grad(), reference.grads.at(stored)), kGradientTolerance)
          << name << ": " << stored;
    }
  }
}

TEST_F(TransformersParity, GreedyOutputsAreIdentical) {
  constexpr size_t kRows = 25;
  for (const std::string& name : kModels) {
    const auto model = load(reference_->directory(name), true);
    const GreedyReference wanted = reference_->greedy(name);
    ASSERT_EQ(wanted.sources.size(), 200);
    size_t ended = 0;
    for (size_t begin = 0; begin < wanted.sources.size(); begin += kRows) {
      const auto outputs = greedy(*model, std::span(wanted.sources).subspan(begin, kRows));
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
    const auto narrow = load(reference_->directory(name), true, dtype);
    EXPECT_EQ(narrow->parameters().at("embedding.weight").scalar_type(), dtype);
    const bool fp16 = dtype == at::kHalf;
    EXPECT_EQ(narrow->parameters().at("decoder.0.feed_forward.down.weight").scalar_type(), fp16 ? at::kFloat : dtype);
    // bf16 keeps 8 bits of a number: a few hundredths after five layers.
    EXPECT_LT(RandomSteps(*narrow, reference).worst_difference(), fp16 ? 0.02 : 0.15) << name;
  }
}

TEST_F(TransformersParity, WhatWeSaveLoadsThereAndGeneratesTheSame) {
  const fs::path saved = reference_->root() / "saved";
  for (const std::string& name : kModels) {
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
