// Training as a whole: it learns, accumulates exactly, stops for NaN, validates, keeps the best, stops early.
#include <cmath>
#include <fstream>
#include <sstream>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"
#include "train/training_checkpoint.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 300, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
  }
  std::filesystem::path run_directory(const std::string& name = "run") const { return folder_ / name; }

  // Lines of metrics.jsonl; validations only, or steps only.
  std::vector<nlohmann::json> metrics(bool validations) const {
    std::vector<nlohmann::json> found;
    for (const std::string& line : lines_of(read_file(run_directory() / "metrics.jsonl"))) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("validation") == validations) found.push_back(json);
    }
    return found;
  }

  TemporaryDirectory folder_;
};

TEST_F(TrainerTest, LearnsAToyTask) {
  TrainOptions options = tiny_options();
  options.length = "5 epochs";
  options.dropout = 0;
  options.accumulate = 1;
  options.validation.every = "1 epochs";
  options.optimizer.lr = 1e-2;
  const TrainResult result = train_tiny_validated(run_directory(), options);
  const auto validations = metrics(true);
  ASSERT_EQ(validations.size(), 5u);
  // Uniform guessing of one token in 26 costs 3.26 nats.
  EXPECT_LT(validations.back()["validation"]["loss"].get<double>(), 2.8);
  EXPECT_GT(validations.back()["validation"]["accuracy"].get<double>(), 0.2);
  EXPECT_EQ(result.state.position.epoch, 5);
  EXPECT_EQ(result.state.examples, 5 * 300);
  EXPECT_TRUE(std::filesystem::exists(result.model / "model.safetensors"));
}

// Gradients of all micro-batches of a step, times gradient_scale.
std::map<std::string, at::Tensor> gradients_of(const data::Corpus& corpus, const MicroBatches& micro_batches) {
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  model.requires_grad(true);
  const auto objective = make_objective({});
  const StepResult result = accumulate_gradients(trainable, *objective, corpus, micro_batches, {});
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, parameter] : model.parameters())
    gradients[name] = parameter.grad() * gradient_scale(result, 0);
  return gradients;
}

TEST_F(TrainerTest, AccumulatedGradientsEqualThoseOfTheLargeBatch) {
  const data::Corpus corpus(folder_ / "train.h5");
  // Micro-batches of very different numbers of labels: a mean of means would be wrong.
  const auto accumulated = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6}, {7}, {8, 9}});
  const auto large = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  EXPECT_EQ(differences(accumulated, large, 1e-4), "");
  const auto other = gradients_of(corpus, {{0, 1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_NE(differences(accumulated, other, 1e-2), "") << "the comparison must be able to fail";
}

TEST_F(TrainerTest, ClippingBoundsTheGlobalNorm) {
  const StepResult result{.loss_sum = 8, .labels = 9, .divisor = 4, .gradient_norm = 10};
  EXPECT_DOUBLE_EQ(gradient_scale(result, 0), 0.25);
  EXPECT_DOUBLE_EQ(gradient_scale(result, 20), 0.25);
  EXPECT_DOUBLE_EQ(gradient_scale(result, 1), 0.025);
}

TEST_F(TrainerTest, DropoutIsAFunctionOfSeedAndMicroStep) {
  const data::Corpus corpus(folder_ / "train.h5");
  const auto loss_of = [&](uint64_t seed, uint64_t micro_step) {
    model::TransformerModel model(tiny_config(), 5);
    PlainTrainable trainable(model);
    model.requires_grad(true);
    const auto objective = make_objective({});
    const StepSettings settings{.dropout = 0.3, .seed = seed, .first_micro_step = micro_step};
    return accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2}}, settings).loss_sum;
  };
  EXPECT_EQ(loss_of(1, 7), loss_of(1, 7));
  EXPECT_NE(loss_of(1, 7), loss_of(1, 8));
  EXPECT_NE(loss_of(1, 7), loss_of(2, 7));
}

TEST_F(TrainerTest, ANonFiniteLossNamesTheExamplesAndKeepsTheCheckpoint) {
  TrainOptions options = tiny_options();
  options.length = "6 steps";
  train_tiny(run_directory(), options);
  const std::string before = read_file(run_directory() / "checkpoints" / "last" / "model" / "model.safetensors");

  const data::Corpus corpus(folder_ / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  model.requires_grad(true);
  {
    const at::NoGradGuard no_grad;
    at::Tensor embedding = model.parameters().at("embedding.weight");
    embedding[corpus.source(17)[0]].fill_(std::nan(""));
  }
  const auto objective = make_objective({});
  std::vector<int64_t> without;
  for (int64_t i = 0; i < 17; ++i) {
    const auto& row = corpus.source(i);
    if (std::find(row.begin(), row.end(), corpus.source(17)[0]) == row.end()) without.push_back(i);
  }
  const StepResult result = accumulate_gradients(trainable, *objective, corpus, {without, {17, 5}}, {});
  ASSERT_TRUE(result.nonfinite.has_value());
  const std::string message = to_string(*result.nonfinite);
  EXPECT_NE(message.find("examples 17, 5"), std::string::npos) << message;
  EXPECT_NE(message.find("train.h5"), std::string::npos) << message;

  // A rate that blows the model up: the run stops with an error, the last checkpoint is the last good one.
  options.optimizer.lr = 100;
  options.clip_norm = 0;
  options.optimizer.adamw.epsilon = 1e-30;
  options.length = "200 steps";
  options.optimizer.weight_decay = 100;
  EXPECT_THROW(train_tiny(run_directory("exploding"), options), RunError);
  CheckpointFolder unused(run_directory("exploding") / "checkpoints", {});
  const auto last = unused.newest();
  ASSERT_TRUE(last.has_value());
  EXPECT_NO_THROW(model::load_model(*last / "model"));
  EXPECT_FALSE(std::filesystem::exists(run_directory("exploding") / "model"));
  EXPECT_EQ(before, read_file(run_directory() / "checkpoints" / "last" / "model" / "model.safetensors"));
}

// Makes the embeddings from `token` on NaN.
void poison(const model::TransformerModel& model, int64_t token) {
  const at::NoGradGuard no_grad;
  at::Tensor embedding = model.parameters().at("embedding.weight");
  embedding.narrow(0, token, kTestVocabulary - token).fill_(std::nan(""));
}

TEST_F(TrainerTest, ANonFiniteLossStopsTheRunNamingStepCorpusAndExamples) {
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  poison(model, 0);
  const data::Corpus corpus(folder_ / "train.h5");
  Trainer trainer(TrainerInputs{.trainable = trainable, .corpus = corpus}, tiny_options(), run_directory());
  const std::string message = error_of<RunError>([&] { trainer.run(); });
  EXPECT_NE(message.find("training step 1\n"), std::string::npos) << message;
  EXPECT_NE(message.find("train.h5"), std::string::npos) << message;
  EXPECT_NE(message.find("from the examples "), std::string::npos) << message;
}

// Corpus of one token a source, which training never sees where it is above the rest.
void write_one_token_corpus(const std::filesystem::path& file, int32_t token, bool labels = true) {
  data::CorpusWriter writer(file, {.tokenizer_hash = "none", .vocabulary = kTestVocabulary});
  const std::vector<int32_t> source = {token, 1}, target = {1};
  for (int64_t i = 0; i < 8; ++i) writer.add(source, labels ? target : std::vector<int32_t>());
  writer.finish();
}

TEST_F(TrainerTest, AValidationThatIsNotFiniteIsAnErrorAndNeverTheBest) {
  write_one_token_corpus(folder_ / "low.h5", 3);
  write_one_token_corpus(folder_ / "high.h5", 28);
  const data::Corpus corpus(folder_ / "low.h5"), validation(folder_ / "high.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  poison(model, 28);
  TrainOptions options = tiny_options();
  options.length = "4 steps";
  options.validation.every = "1 steps";
  Trainer trainer({.trainable = trainable, .corpus = corpus, .validation = &validation}, options, run_directory());
  const std::string message = error_of<RunError>([&] { trainer.run(); });
  EXPECT_NE(message.find("validation"), std::string::npos) << message;
  EXPECT_NE(message.find("high.h5"), std::string::npos) << message;
  EXPECT_NE(message.find("training step 1\n"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(run_directory() / "best"));
}

TEST_F(TrainerTest, AValidationCorpusWithoutLabelsIsRefused) {
  write_one_token_corpus(folder_ / "validation.h5", 3, false);
  const std::string message = error_of([&] { train_tiny_validated(run_directory(), tiny_options()); });
  EXPECT_NE(message.find("no target token"), std::string::npos) << message;
}

TEST_F(TrainerTest, ATeacherThatDoesNotFitIsRefused) {
  const data::Corpus corpus(folder_ / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  model::TransformerConfig smaller = tiny_config(), other_start = tiny_config();
  smaller.vocabulary = kTestVocabulary - 1;
  other_start.decoder_start = 2;
  for (const auto& [config, expected] : {std::pair{smaller, "more token ids than the teacher"},
                                         std::pair{other_start, "begin their outputs with different tokens"}}) {
    model::TransformerModel teacher(config, 6);
    const std::string message = error_of([&] {
      Trainer({.trainable = trainable, .corpus = corpus, .validation = &corpus, .teacher = &teacher}, {},
              run_directory());
    });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST_F(TrainerTest, FrozenParametersStayAndDoNotCountInTheNorm) {
  TrainOptions options = tiny_options();
  options.length = "3 steps";  // the last one's rate is 0
  options.log_every = 1;
  train_tiny(run_directory(), options);
  const double whole = metrics(false).at(0)["gradient_norm"];
  std::filesystem::remove_all(run_directory());
  options.optimizer.groups = {{.parameters = "embedding.weight", .lr_factor = 0}};
  const TrainResult result = train_tiny(run_directory(), options);
  EXPECT_LT(metrics(false).at(0)["gradient_norm"].get<double>(), whole);
  const auto trained = model::load_model(result.model, {.pack = false});
  const model::TransformerModel fresh(tiny_config(), 5);
  EXPECT_TRUE(trained->parameters().at("embedding.weight").equal(fresh.parameters().at("embedding.weight")));
  EXPECT_FALSE(trained->parameters().at("head.weight").equal(fresh.parameters().at("head.weight")));
  options.optimizer.groups = {{.parameters = "*", .lr_factor = 0}};
  const std::string message = error_of([&] { train_tiny(run_directory("frozen"), options); });
  EXPECT_NE(message.find("every parameter is frozen"), std::string::npos) << message;
}

TEST_F(TrainerTest, StopsEarlyAndKeepsTheBestModel) {
  TrainOptions options = tiny_options();
  options.length = "200 steps";
  options.optimizer.lr = 0.5;  // far too large: validation soon gets worse
  options.schedule = {};
  options.validation.every = "4 steps";
  options.validation.patience = 3;
  const TrainResult result = train_tiny_validated(run_directory(), options);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_LT(result.state.step, 200);
  EXPECT_EQ(result.state.since_best, 3);
  EXPECT_EQ(result.state.step, result.state.best_step + 3 * 4);
  EXPECT_EQ(read_file(run_directory() / "best" / "model.safetensors"), read_file(result.model / "model.safetensors"));
  EXPECT_NE(read_file(run_directory() / "checkpoints" / "last" / "model" / "model.safetensors"),
            read_file(result.model / "model.safetensors"));
  // The log's best line is the state's.
  double lowest = INFINITY;
  for (const auto& line : metrics(true)) lowest = std::min(lowest, line["validation"]["loss"].get<double>());
  EXPECT_DOUBLE_EQ(lowest, *result.state.best_value);
}

TEST_F(TrainerTest, ValidationCountsEveryLabelOnceWhateverTheBatches) {
  const data::Corpus corpus(folder_ / "validation.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  ValidationOptions options;
  const ValidationInputs inputs{.corpus = &corpus};
  const ValidationResult large = validate(trainable, inputs, options);
  options.token_budget = 12;
  const ValidationResult small = validate(trainable, inputs, options);
  EXPECT_EQ(large.labels, corpus.info().target_tokens);
  EXPECT_EQ(small.labels, large.labels);
  EXPECT_NEAR(small.loss, large.loss, 1e-5);
  EXPECT_EQ(small.accuracy, large.accuracy);
  EXPECT_NEAR(large.loss, std::log(kTestVocabulary), 1.0);
}

TEST_F(TrainerTest, AlphaAgainstItselfIsOneAndAgainstAnotherLess) {
  const data::Corpus corpus(folder_ / "validation.h5");
  model::TransformerModel model(tiny_config(), 5), other(tiny_config(), 6);
  PlainTrainable trainable(model);
  ValidationInputs inputs{.corpus = &corpus};
  inputs.teacher = &model;
  EXPECT_NEAR(*validate(trainable, inputs, {}).overlap, 1, 1e-5);
  inputs.teacher = &other;
  const double alpha = *validate(trainable, inputs, {}).overlap;
  EXPECT_LT(alpha, 0.99);
  EXPECT_GT(alpha, 0.01);
}

TEST_F(TrainerTest, AMeasureWithoutItsInputsIsAnErrorBeforeAnythingIsWritten) {
  TrainOptions options = tiny_options();
  options.validation.measure = "overlap";
  const std::string message = error_of([&] { train_tiny_validated(run_directory(), options); });
  EXPECT_NE(message.find("teacher"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(run_directory()));
}

TEST_F(TrainerTest, AnotherRunsCheckpointIsRefused) {
  TrainOptions options = tiny_options();
  options.length = "3 steps";
  train_tiny(run_directory(), options);
  options.optimizer.lr = 1;
  const std::string message = error_of([&] { train_tiny(run_directory(), options); });
  EXPECT_NE(message.find("other options or data"), std::string::npos) << message;
}

TEST_F(TrainerTest, AFinishedRunIsNotTrainedAgain) {
  TrainOptions options = tiny_options();
  options.length = "5 steps";
  const TrainResult first = train_tiny(run_directory(), options);
  const std::string weights = read_file(first.model / "model.safetensors");
  const std::string log = read_file(run_directory() / "metrics.jsonl");
  const TrainResult second = train_tiny(run_directory(), options);
  EXPECT_EQ(second.state.step, 5);
  EXPECT_EQ(read_file(second.model / "model.safetensors"), weights);
  EXPECT_EQ(read_file(run_directory() / "metrics.jsonl"), log);
}

TEST_F(TrainerTest, Bf16AutocastLearnsOverFp32Weights) {
  TrainOptions options = tiny_options();
  options.length = "30 steps";
  options.precision = "bf16";
  options.log_every = 1;
  const TrainResult result = train_tiny(run_directory(), options);
  const auto lines = metrics(false);
  EXPECT_LT(lines.back()["loss"].get<double>(), lines.front()["loss"].get<double>());
  const auto model = model::load_model(result.model, {.pack = false});
  const at::Tensor weight = model->parameters().at("decoder.0.feed_forward.up.weight");
  EXPECT_FALSE(weight.to(at::kBFloat16).to(at::kFloat).equal(weight)) << "the weights were rounded to bf16";
}

TEST(TrainerGpu, Bf16AutocastTrainsOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const TemporaryDirectory folder;
  write_reversal_corpus(folder / "train.h5", 300, 1);
  const data::Corpus corpus(folder / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  model.to(at::kCUDA, at::kFloat);
  TrainOptions options = tiny_options();
  options.precision = "bf16";
  const TrainResult result =
      Trainer(TrainerInputs{.trainable = trainable, .corpus = corpus}, options, folder / "run").run();
  EXPECT_TRUE(std::isfinite(result.state.window_loss));
  EXPECT_EQ(model.parameters().at("embedding.weight").scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace draftsmith::train
