// Greedy BLEU in validation: against the model's own outputs it is perfect, and it follows the weights as they change.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/generator.h"
#include "tests/train/fixtures.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kOutputTokens = 10;

class ValidationBleu : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> lines;
    for (int i = 0; i < 60; ++i) lines.push_back("the old dog saw a red fox run over the hill " + std::to_string(i));
    data::TokenizerOptions options;
    options.vocabulary = 40;
    options.exact_size = false;
    data::train_tokenizer(lines, options, folder_ / "spiece.model");
    tokenizer_ = data::load_tokenizer(folder_ / "spiece.model");

    data::CorpusInfo info;
    info.tokenizer_hash = tokenizer_->hash();
    info.vocabulary = tokenizer_->vocabulary();
    data::CorpusWriter writer(folder_ / "validation.h5", info);
    for (int i = 0; i < 6; ++i) {
      auto row = tokenizer_->encode(lines[static_cast<size_t>(i)]);
      row.push_back(tokenizer_->eos());
      writer.add(row, row);
    }
    writer.finish();
    corpus_ = std::make_unique<data::Corpus>(folder_ / "validation.h5");
    model::TransformerConfig config = tiny_config();
    config.vocabulary = tokenizer_->vocabulary();
    model_ = std::make_unique<model::TransformerModel>(config, 3);
  }

  // The model's greedy outputs as text, from a model of its own that remembers nothing.
  std::vector<std::string> outputs() const {
    std::map<std::string, at::Tensor> copies;
    for (const auto& [name, tensor] : model_->parameters()) copies[name] = tensor.clone();
    model::TransformerModel fresh(model_->config(), std::move(copies));
    infer::GenerationModels models;
    models.target = &fresh;
    infer::DecodeOptions options;
    options.max_new_tokens = kOutputTokens;
    infer::Generator generator(models, options);
    std::vector<std::vector<int64_t>> sources;
    for (int64_t i = 0; i < corpus_->size(); ++i) {
      sources.emplace_back(corpus_->source(i).begin(), corpus_->source(i).end());
    }
    std::vector<std::string> texts;
    for (const auto& result : generator.generate(sources)) {
      texts.push_back(tokenizer_->decode(std::vector<int32_t>(result.ids.begin(), result.ids.end())));
    }
    return texts;
  }

  double bleu(const std::vector<std::string>& references) {
    ValidationInputs inputs{.corpus = corpus_.get(), .tokenizer = tokenizer_.get(), .references = references};
    ValidationOptions options;
    options.bleu_examples = corpus_->size();
    options.max_new_tokens = kOutputTokens;
    PlainTrainable trainable(*model_);
    return validate(trainable, inputs, options).bleu.value();
  }

  void change_weights(int64_t seed) {
    const model::TransformerModel other(model_->config(), static_cast<uint64_t>(seed));
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model_->parameters()) {
      at::Tensor target = tensor;
      target.copy_(other.parameters().at(name));
    }
  }

  TemporaryDirectory folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<data::Corpus> corpus_;
  std::unique_ptr<model::TransformerModel> model_;
};

TEST_F(ValidationBleu, IsPerfectAgainstTheModelsOwnOutputs) {
  change_weights(4);  // whose outputs have the four words that BLEU needs
  const double own = bleu(outputs());
  EXPECT_GT(own, 99.0);
  EXPECT_LT(bleu({}), own) << "against the decoded targets an untrained model cannot be perfect";
}

TEST_F(ValidationBleu, FollowsWeightsThatChangedSinceTheLastValidation) {
  const auto before = outputs();
  bleu(before);
  change_weights(4);
  const auto after = outputs();
  ASSERT_NE(before, after);
  EXPECT_GT(bleu(after), 99.0);
  EXPECT_LT(bleu(before), 99.0);
}

}  // namespace
}  // namespace draftsmith::train
