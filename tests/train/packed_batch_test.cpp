#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "train/batch.h"
#include "train/objectives/cross_entropy.h"
#include "train/teacher/teacher_source.h"
#include "train/trainer.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kVocabulary = 23;

// Every kind of positions that a decoder-only family has.
std::vector<model::TransformerConfig> decoder_only_configs() {
  const model::ModelSizes sizes = {.vocabulary = kVocabulary, .heads = 4, .head_width = 4};
  model::ModelSizes grouped = sizes;
  grouped.kv_heads = 2;
  std::vector<model::TransformerConfig> configs = {model::llama_config(grouped), model::gpt2_config(sizes),
                                                   model::bloom_config(sizes)};
  for (model::TransformerConfig& config : configs) {
    config.initializer_range = 0.3;
    config.dropout = 0;
    config.decoder_start = 2;
    config.max_positions = 64;
  }
  return configs;
}

// Prompts of 0 to 6 tokens and continuations of 1 to 9.
data::Corpus make_corpus(const std::filesystem::path& file, int64_t examples) {
  data::CorpusWriter writer(file,
                            {.tokenizer_hash = "abc", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
  RandomSequence random{CounterRandom(11, "packed")};
  const auto row = [&](uint64_t count) {
    std::vector<int32_t> tokens;
    for (uint64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(3 + random.below(kVocabulary - 3)));
    return tokens;
  };
  for (int64_t i = 0; i < examples; ++i) {
    const auto source = row(random.below(7));
    writer.add(source, row(1 + random.below(9)));
  }
  writer.finish();
  return data::Corpus(file);
}

std::vector<int64_t> all_of(const data::Corpus& corpus) {
  std::vector<int64_t> all(static_cast<size_t>(corpus.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return all;
}

TEST(PackedBatch, SourcesOfEncodersAndTooLongExamplesAreErrors) {
  const TemporaryDirectory folder;
  data::CorpusWriter writer(folder / "c.h5", {.tokenizer_hash = "abc", .vocabulary = kVocabulary});
  writer.add(std::vector<int32_t>(40, 5), std::vector<int32_t>(40, 6));
  writer.finish();
  const data::Corpus corpus(folder / "c.h5");
  model::TransformerModel model(decoder_only_configs()[0], 5);
  PlainTrainable trainable(model);
  const std::string message =
      error_of([&] { Trainer({.trainable = trainable, .corpus = corpus}, TrainOptions(), folder / "run"); });
  EXPECT_NE(message.find("prompts = true"), std::string::npos) << message;
  EXPECT_NE(message.find("at most 64 tokens"), std::string::npos) << message;
}

// The gradient is compared as well: nothing may flow from one document to the next.
TEST(PackedBatch, LossAndGradientsAreThoseOfTheExamplesAlone) {
  const TemporaryDirectory folder;
  const data::Corpus corpus = make_corpus(folder / "train.h5", 14);
  for (const auto& config : decoder_only_configs()) {
    model::TransformerModel model(config, 5);
    PlainTrainable trainable(model);
    model.to(at::kCPU, at::kDouble);
    model.requires_grad(true);
    CrossEntropy objective({});
    double alone = 0;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      const Loss loss = objective.loss(trainable, make_batch(corpus, {i}, model.info()), {});
      loss.sum.backward();
      alone += loss.sum.item<double>();
    }
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, tensor] : model.parameters()) {
      gradients[name] = tensor.grad().clone();
      tensor.mutable_grad().reset();
    }
    const Batch batch = make_batch(corpus, all_of(corpus), model.info(), 24);
    ASSERT_LT(batch.decoder_input.tokens.size(0), corpus.size());
    const Loss packed = objective.loss(trainable, batch, {});
    packed.sum.backward();
    EXPECT_NEAR(packed.sum.item<double>(), alone, 1e-9 * alone) << config.family;
    EXPECT_EQ(packed.count, corpus.info().target_tokens);
    for (const auto& [name, tensor] : model.parameters()) {
      EXPECT_LT(difference(tensor.grad(), gradients.at(name)), 1e-9) << config.family << ' ' << name;
    }
  }
}

TEST(PackedBatch, OnlyContinuationsAreLabels) {
  const TemporaryDirectory folder;
  data::CorpusWriter writer(folder / "c.h5",
                            {.tokenizer_hash = "abc", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
  writer.add(std::vector<int32_t>{5, 6, 7}, std::vector<int32_t>{8, 9, 1});
  writer.add({}, std::vector<int32_t>{10, 1});
  writer.finish();
  const data::Corpus corpus(folder / "c.h5");
  model::ModelInfo info;
  info.encoder_decoder = false;
  info.decoder_start = 2;
  info.pad = 0;
  const Batch batch = make_batch(corpus, {0, 1}, info, 16);
  EXPECT_TRUE(batch.decoder_input.tokens.equal(at::tensor({5, 6, 7, 8, 9, 2, 10}, at::kLong).unsqueeze(0)));
  EXPECT_EQ(batch.decoder_input.segments, (std::vector<std::vector<int64_t>>{{5, 2}}));
  EXPECT_TRUE(batch.labels.equal(at::tensor({8, 9, 1, 10, 1}, at::kLong)));
  EXPECT_TRUE(batch.positions.equal(at::tensor({2, 3, 4, 5, 6}, at::kLong)));
  const Batch apart = make_batch(corpus, {0, 1}, info);
  EXPECT_TRUE(apart.decoder_input.tokens.equal(at::tensor({5, 6, 7, 8, 9, 2, 10, 0, 0, 0}, at::kLong).view({2, 5})));
  EXPECT_TRUE(apart.decoder_input.segments.empty());
}

// A decoder-only model learns to repeat its prompt; packed or not, the loss falls.
TEST(PackedBatch, TrainingLearns) {
  const TemporaryDirectory folder;
  data::CorpusWriter writer(folder / "c.h5",
                            {.tokenizer_hash = "abc", .vocabulary = kVocabulary, .provenance = {{"prompts", "true"}}});
  RandomSequence random{CounterRandom(3, "copy")};
  for (int i = 0; i < 60; ++i) {
    const auto token = static_cast<int32_t>(3 + random.below(10));
    writer.add(std::vector<int32_t>{token, 20}, std::vector<int32_t>{token, 1});
  }
  writer.finish();
  const data::Corpus corpus(folder / "c.h5");
  for (const int64_t pack : {0, 12}) {
    model::TransformerModel model(decoder_only_configs()[0], 5);
    PlainTrainable trainable(model);
    TrainOptions options;
    options.length = "60 steps";
    options.batches.token_budget = 96;
    options.batches.pack_tokens = pack;
    options.optimizer.lr = 0.01;
    options.tensorboard = false;
    Trainer trainer({.trainable = trainable, .corpus = corpus}, options, folder / ("run" + std::to_string(pack)));
    trainer.run();
    const at::NoGradGuard no_grad;
    CrossEntropy objective({});
    const Loss loss = objective.loss(trainable, make_batch(corpus, all_of(corpus), model.info()), {});
    EXPECT_LT(loss.sum.item<double>() / static_cast<double>(loss.count), 0.2) << pack;
  }
}

// They are given the batches, and would take what is beyond their last position for that.
TEST(DecoderOnlyTraining, TextsThatAreTooLongForATeacherAreRefused) {
  const TemporaryDirectory folder;
  const data::Corpus corpus = make_corpus(folder / "c.h5", 40);
  model::TransformerModel model(decoder_only_configs()[1], 5);
  PlainTrainable trainable(model);
  model::TransformerConfig shorter = decoder_only_configs()[1];
  shorter.max_positions = 8;
  model::TransformerModel teacher(shorter, 6);
  teacher.set_name("short-teacher");
  LiveTeacher live(teacher);
  TrainOptions options;
  options.length = "1 steps";
  options.tensorboard = false;
  const auto error_with = [&](const TrainerInputs& inputs) {
    return error_of([&] { Trainer(inputs, options, folder / "run").run(); });
  };
  for (const std::string& message :
       {error_with({.trainable = trainable, .corpus = corpus, .distilled = &live}),
        error_with({.trainable = trainable, .corpus = corpus, .validation = &corpus, .teacher = &teacher})}) {
    EXPECT_NE(message.find("short-teacher"), std::string::npos) << message;
    EXPECT_NE(message.find("at most 8 tokens"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace draftsmith::train
