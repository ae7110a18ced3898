// Batches of decoder-only models: packed rows, prompts and continuations, token budgets and the last position.
#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "train/objectives/objective.h"
#include "train/teacher/student_samples.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_model.h"
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

TEST(PackedBatch, SourcesOfEncodersAndTooLongExamplesAreErrors) {
  const TemporaryDirectory folder;
  data::CorpusWriter writer(folder / "c.h5", {.tokenizer_hash = "abc", .vocabulary = kVocabulary});
  writer.add(std::vector<int32_t>(40, 5), std::vector<int32_t>(40, 6));
  writer.finish();
  const data::Corpus corpus(folder / "c.h5");
  model::TransformerModel model(decoder_only_configs()[0], 5);
  PlainTrainable trainable(model);
  EXPECT_THAT(
      error_of([&] { run_training({.trainable = trainable, .corpus = corpus}, TrainOptions(), folder / "run"); }),
      AllOf(HasSubstr("prompts = true"), HasSubstr("at most 64 tokens")));
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
    const auto objective = make_objective({});
    double alone = 0;
    std::vector<int64_t> all;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      all.push_back(i);
      const Loss loss = objective->loss(trainable, make_batch(corpus, {i}, model.info()), {});
      loss.sum.backward();
      alone += loss.sum.item<double>();
    }
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, tensor] : model.parameters()) {
      gradients[name] = tensor.grad().clone();
      tensor.mutable_grad().reset();
    }
    const Batch batch = make_batch(corpus, all, model.info(), 24);
    ASSERT_LT(batch.decoder_input.tokens.size(0), corpus.size());
    const Loss packed = objective->loss(trainable, batch, {});
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
  model::ModelInfo info{.decoder_start = 2, .pad = 0, .encoder_decoder = false};
  const Batch batch = make_batch(corpus, {0, 1}, info, 16);
  EXPECT_TRUE(batch.decoder_input.tokens.equal(at::tensor({5, 6, 7, 8, 9, 2, 10}, at::kLong).unsqueeze(0)));
  EXPECT_EQ(batch.decoder_input.segments, (std::vector<std::vector<int64_t>>{{5, 2}}));
  EXPECT_TRUE(batch.labels.equal(at::tensor({8, 9, 1, 10, 1}, at::kLong)));
  EXPECT_TRUE(batch.positions.equal(at::tensor({2, 3, 4, 5, 6}, at::kLong)));
  const Batch apart = make_batch(corpus, {0, 1}, info);
  EXPECT_TRUE(apart.decoder_input.tokens.equal(at::tensor({5, 6, 7, 8, 9, 2, 10, 0, 0, 0}, at::kLong).view({2, 5})));
  EXPECT_TRUE(apart.decoder_input.segments.empty());
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
  TrainOptions options{.length = "1 steps"};
  const auto error_with = [&](const TrainerInputs& inputs) {
    return error_of([&] { run_training(inputs, options, folder / "run"); });
  };
  for (const std::string& message :
       {error_with({.trainable = trainable, .corpus = corpus, .distilled = &live}),
        error_with(
            {.trainable = trainable, .corpus = corpus, .validation = {.corpus = &corpus, .teacher = &teacher}})}) {
    EXPECT_THAT(message, AllOf(HasSubstr("short-teacher"), HasSubstr("at most 8 tokens")));
  }
}

// Of an encoder-decoder sources and targets have positions of their own.
TEST(Batch, SourcesAndTargetsOfEncoderDecodersMustFitApart) {
  const TemporaryDirectory folder;
  const data::Corpus corpus = make_corpus(folder / "c.h5", 40);
  int64_t longest = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    longest = std::max({longest, std::ssize(corpus.source(i)), std::ssize(corpus.target(i))});
  }
  model::ModelInfo info = model::TransformerModel(tiny_config(), 1).info();
  info.vocabulary = kVocabulary;
  for (const int64_t positions : {longest, longest - 1}) {
    info.max_positions = positions;
    Problems problems;
    check_corpus(corpus, info, problems);
    EXPECT_EQ(problems.empty(), positions == longest);
  }
}

TEST(Batch, NumbersTheSequenceOfEachLabel) {
  const std::vector<int32_t> prompt{5, 6}, one{7}, two{8, 9}, none;
  const std::vector<ExampleTokens> examples{{prompt, two}, {prompt, one}, {none, two}};
  const at::Tensor expected = at::tensor({0, 0, 1, 2, 2}, at::kLong);
  const auto t5 = model::TransformerModel(tiny_config(), 1);
  EXPECT_TRUE(make_batch(examples, t5.info()).sequences().equal(expected));
  const auto llama = model::TransformerModel(model::tiny_llama(), 1);
  EXPECT_TRUE(make_batch(examples, llama.info()).sequences().equal(expected));
  const Batch packed = make_batch(examples, llama.info(), 16);
  ASSERT_EQ(packed.decoder_input.lengths.size(), 1U);  // all in one row
  EXPECT_TRUE(packed.sequences().equal(expected));
}

TEST(DecoderOnlyTraining, APromptThatFillsTheContextHasAnEmptySample) {
  const TemporaryDirectory folder;
  const data::Corpus corpus = make_corpus(folder / "c.h5", 16);
  std::vector<int64_t> all(16), lengths;
  std::iota(all.begin(), all.end(), 0);
  for (const int64_t example : all) lengths.push_back(std::ssize(corpus.source(example)));
  model::TransformerConfig shorter = decoder_only_configs()[1];
  shorter.max_positions = std::ranges::max(lengths);
  model::TransformerModel student(shorter, 1);
  PlainTrainable trainable(student);
  const Batch given = make_batch(corpus, all, student.info());
  const Batch samples = StudentSamples({.share = 1, .max_new_tokens = 4}, corpus).batch(trainable, given, 1);
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(samples.label_counts[i] == 0, lengths[i] == shorter.max_positions) << i;
  }
}

TEST(DecoderOnlyTraining, SamplesOfTheStudentEndAtTheTeachersLastPosition) {
  const TemporaryDirectory folder;
  const data::Corpus corpus = make_corpus(folder / "c.h5", 16);
  model::TransformerConfig shorter = decoder_only_configs()[1];
  shorter.max_positions = 20;
  model::TransformerModel student(decoder_only_configs()[1], 1), teacher(shorter, 2);
  PlainTrainable trainable(student);
  LiveTeacher live(teacher);
  ObjectiveOptions options{.name = "distill"};
  options.distill.on_policy = {.share = 1, .max_new_tokens = 40};
  std::vector<int64_t> all(16);
  std::iota(all.begin(), all.end(), 0);
  const Batch given = make_batch(corpus, all, student.info());
  const auto samples = [&](int64_t positions) {
    return StudentSamples(options.distill.on_policy, corpus, 0, positions).batch(trainable, given, 1);
  };
  const Batch ended = samples(20);
  EXPECT_EQ(ended.decoder_input.tokens.size(1), 20);
  EXPECT_GT(samples(0).decoder_input.tokens.size(1), 20);
  const auto objective = make_objective(options, {&trainable, &corpus, &live});
  EXPECT_EQ(objective->loss(trainable, given, {.step = 1}).count, ended.label_count());
  // Rows that are packed fit the budget by their width, whatever the longest sample.
  const Batch packed = make_batch(corpus, all, student.info(), 64);
  const int64_t rows = packed.decoder_input.tokens.size(0);
  const Batch kept = StudentSamples({.share = 1, .max_new_tokens = 2}, corpus, rows * 64).batch(trainable, packed, 1);
  EXPECT_GE(kept.label_count(), 16) << "all examples, whose samples are short";
}

}  // namespace
}  // namespace draftsmith::train
