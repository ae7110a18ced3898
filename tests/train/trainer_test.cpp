// Training as a whole: it learns, validates, keeps the best, stops early, and refuses what does not fit.
#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/model_directory.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"
#include "train/validation.h"

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
  TrainOptions options = learning("5 epochs");
  options.accumulate = 1;
  options.validation.every = "1 epochs";
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
  {
    const at::NoGradGuard no_grad;
    model.parameters().at("embedding.weight")[28].fill_(std::nan(""));
  }
  TrainOptions options = tiny_options();
  options.length = "4 steps";
  options.validation.every = "1 steps";
  const TrainerInputs inputs{.trainable = trainable, .corpus = corpus, .validation = {.corpus = &validation}};
  EXPECT_THAT(error_of<RunError>([&] { run_training(inputs, options, run_directory()); }),
              AllOf(HasSubstr("validation"), HasSubstr("high.h5"), HasSubstr("training step 1\n")));
  EXPECT_FALSE(std::filesystem::exists(run_directory() / "best"));
}

TEST_F(TrainerTest, ValidationsThatCannotBeAreRefusedBeforeAnythingIsWritten) {
  TrainOptions options = tiny_options();
  options.validation.measure = "overlap";
  EXPECT_THAT(error_of([&] { train_tiny_validated(run_directory(), options); }), HasSubstr("teacher"));
  write_one_token_corpus(folder_ / "validation.h5", 3, false);
  EXPECT_THAT(error_of([&] { train_tiny_validated(run_directory(), tiny_options()); }), HasSubstr("no target token"));
  const data::Corpus corpus(folder_ / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  model::TransformerConfig other_start = tiny_config();
  other_start.decoder_start = 2;
  model::TransformerModel teacher(other_start, 6);
  PlainTrainable trainable(model);
  const TrainerInputs inputs{
      .trainable = trainable, .corpus = corpus, .validation = {.corpus = &corpus, .teacher = &teacher}};
  EXPECT_THAT(error_of([&] { run_training(inputs, {}, run_directory()); }),
              HasSubstr("begin their outputs with different tokens"));
  EXPECT_FALSE(std::filesystem::exists(run_directory()));
}

TEST_F(TrainerTest, FrozenParametersStayAndDoNotCountInTheNorm) {
  TrainOptions options = tiny_options();
  options.length = "3 steps";
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
  EXPECT_THAT(error_of([&] { train_tiny(run_directory("frozen"), options); }), HasSubstr("every parameter is frozen"));
}

// Another value of each option gives other weights.
TEST_F(TrainerTest, OptionsReachTheSteps) {
  TrainOptions usual = tiny_options();
  usual.length = "3 steps";
  usual.log_every = 1;
  usual.schedule = {.name = "constant", .warmup = "2 steps"};
  const auto weights_with = [&](const auto& change) {
    std::filesystem::remove_all(run_directory());
    TrainOptions options = usual;
    change(options);
    return read_file(train_tiny(run_directory(), options).model / "model.safetensors");
  };
  const std::string weights = weights_with([](TrainOptions&) {});
  const auto lines = metrics(false);
  ASSERT_EQ(lines.size(), 3u);
  for (const size_t i : {0, 1, 2}) EXPECT_NEAR(lines[i].at("lr").get<double>(), i == 0 ? 1.5e-3 : 3e-3, 1e-12) << i;
  EXPECT_TRUE(weights == weights_with([](TrainOptions&) {}));
  EXPECT_FALSE(weights == weights_with([](TrainOptions& options) { options.clip_norm = 1e-3; })) << "clip_norm";
  EXPECT_FALSE(weights == weights_with([](TrainOptions& options) { options.dropout = 0.2; })) << "dropout";
  EXPECT_FALSE(weights == weights_with([](TrainOptions& options) { options.precision = "bf16"; })) << "precision";
  EXPECT_FALSE(weights == weights_with([](TrainOptions& options) { options.schedule = {}; })) << "schedule";
}

// The last step alone would hide what happened between two lines of the log.
TEST_F(TrainerTest, TheLogHasTheLargestNormAndTheShareOfClippedSteps) {
  TrainOptions options = tiny_options();
  options.length = "6 steps";
  options.log_every = 1;
  options.clip_norm = 0;
  train_tiny(run_directory(), options);
  std::vector<double> norms;
  for (const auto& line : metrics(false)) norms.push_back(line.at("gradient_norm"));
  ASSERT_EQ(norms.size(), 6u);
  options.log_every = 6;
  for (const double clip_norm : {0.0, 1e-3}) {
    std::filesystem::remove_all(run_directory());
    options.clip_norm = clip_norm;
    train_tiny(run_directory(), options);
    const auto line = metrics(false).at(0);
    EXPECT_EQ(line.at("clipped"), clip_norm > 0 ? 1 : 0);
    if (clip_norm > 0) continue;
    EXPECT_EQ(line.at("gradient_norm_max"), *std::max_element(norms.begin(), norms.end()));
  }
}

TEST_F(TrainerTest, StopsEarlyAndKeepsTheBestModel) {
  TrainOptions options = tiny_options();
  options.length = "200 steps";
  options.optimizer.lr = 0.5;  // far too large: validation soon gets worse
  options.schedule = {};
  options.validation.every = "4 steps";
  options.validation.patience = 3;
  const TrainResult result = train_tiny_validated(run_directory(), options);
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
  options.keep = "last";
  const TrainResult last = train_tiny_validated(run_directory("last"), options);
  EXPECT_EQ(read_file(last.model / "model.safetensors"),
            read_file(run_directory() / "checkpoints" / "last" / "model" / "model.safetensors"));
}

TEST_F(TrainerTest, AFinishedRunIsNotTrainedAgainAndAnotherOneRefusesItsCheckpoint) {
  TrainOptions options = tiny_options();
  options.length = "5 steps";
  const TrainResult first = train_tiny(run_directory(), options);
  const std::string weights = read_file(first.model / "model.safetensors");
  const std::string log = read_file(run_directory() / "metrics.jsonl");
  const TrainResult second = train_tiny(run_directory(), options);
  EXPECT_EQ(second.state.step, 5);
  EXPECT_EQ(read_file(second.model / "model.safetensors"), weights);
  EXPECT_EQ(read_file(run_directory() / "metrics.jsonl"), log);
  options.optimizer.lr = 1;
  EXPECT_THAT(error_of([&] { train_tiny(run_directory(), options); }), HasSubstr("other options or data"));
}

TEST_F(TrainerTest, Bf16AutocastLearnsOverFp32Weights) {
  const data::Corpus corpus(folder_ / "train.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  TrainOptions options = tiny_options();
  options.length = "30 steps";
  options.precision = "bf16";
  const double before = validate(trainable, {.corpus = &corpus}, {}).loss;
  run_training({.trainable = trainable, .corpus = corpus}, options, run_directory());
  EXPECT_LT(validate(trainable, {.corpus = &corpus}, {}).loss, before);
  const at::Tensor weight = model.parameters().at("decoder.0.feed_forward.up.weight");
  EXPECT_FALSE(weight.to(at::kBFloat16).to(at::kFloat).equal(weight)) << "the weights were rounded to bf16";
}

}  // namespace
}  // namespace draftsmith::train
