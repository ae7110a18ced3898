// Training of Tandems: right gradients in every configuration, only what is to be trained changes, it learns, resumes
// exactly, and its result decodes with its primary.
#include <csignal>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/random_tensors.h"
#include "base/signals.h"
#include "model/tandem.h"
#include "tests/model/tandem_fixtures.h"
#include "tests/train/fixtures.h"
#include "train/objectives/cross_entropy.h"
#include "train/tandem_trainee.h"

namespace draftsmith::train {
namespace {

using Weights = std::map<std::string, at::Tensor>;

model::TransformerConfig with_test_vocabulary(model::TransformerConfig config) {
  config.vocabulary = kTestVocabulary;
  config.dropout = 0.1;
  config.tied_head = config.family != "t5";
  config.output_scale = 1;  // as an untied T5 has
  return config;
}

// A primary and a smaller secondary of its family.
struct Pair {
  explicit Pair(const model::TransformerConfig& config, at::ScalarType type = at::kFloat, uint64_t seed = 3)
      : primary(model::varied_model(with_test_vocabulary(config), seed, type)),
        secondary(model::small_secondary(*primary, seed + 1, type)) {}
  TandemTrainee trainee(TandemConfiguration configuration) const {
    return {*secondary, *primary, {.configuration = configuration}};
  }

  std::unique_ptr<model::TransformerModel> primary, secondary;
};

Weights copy_of(const model::TransformerModel& model) {
  Weights copies;
  for (const auto& [name, value] : model.parameters()) copies[name] = value.detach().clone();
  return copies;
}

int64_t changed(const Weights& before, const model::TransformerModel& model) {
  int64_t count = 0;
  for (const auto& [name, value] : before) count += model.parameters().at(name).equal(value) ? 0 : 1;
  return count;
}

// Prompts of 1 to 4 tokens, continued by themselves.
void write_copy_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed) {
  data::CorpusWriter writer(
      file, {.tokenizer_hash = "none", .vocabulary = kTestVocabulary, .provenance = {{"prompts", "true"}}});
  RandomSequence random{CounterRandom(seed, "copy corpus")};
  for (int64_t i = 0; i < examples; ++i) {
    std::vector<int32_t> prompt, target;
    const uint64_t length = 1 + random.below(4);
    for (uint64_t t = 0; t < length; ++t) prompt.push_back(static_cast<int32_t>(3 + random.below(8)));
    target = prompt;
    target.push_back(1);
    writer.add(prompt, target);
  }
  writer.finish();
}

class TandemTraining : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 300, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
    write_copy_corpus(folder_ / "copy.h5", 300, 1);
  }

  TrainOptions options() const {
    TrainOptions options = tiny_options();
    options.length = "6 steps";
    options.tensorboard = false;
    return options;
  }

  // The primary's directory, which results of a frozen one refer to.
  std::filesystem::path saved_primary(const Pair& pair) const {
    auto directory = folder_ / "primary";
    if (!std::filesystem::exists(directory)) model::save_model(directory, *pair.primary);
    return directory;
  }

  TrainResult train(Pair& pair, TandemTraineeOptions tandem, const TrainOptions& training,
                    const std::string& run) const {
    if (tandem.configuration == TandemConfiguration::kPrimaryFrozen) tandem.primary_directory = saved_primary(pair);
    TandemTrainee trainee(*pair.secondary, *pair.primary, tandem);
    const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
    return Trainer({.trainee = trainee, .corpus = corpus, .validation = &validation}, training, folder_ / run).run();
  }

  TemporaryDirectory folder_;
};

// Compares each parameter's gradient with the change of the loss along a random direction.
void expect_right_gradients(Trainee& trainee, const Batch& batch) {
  CrossEntropy objective({.label_smoothing = 0.1});
  const model::DropoutContext dropout{.probability = 0.1, .seed = 4, .step = 2};
  require_gradients(trainee, true);
  objective.loss(trainee, batch, dropout).sum.backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const auto& [name, parameter] : trainee.parameters()) {
    at::Tensor value = parameter;
    const at::Tensor direction = normal_tensor(value.sizes().vec(), 1, 9, name, at::kDouble);
    const auto loss_at = [&](double distance) {
      value.add_(direction, distance);
      const double loss = objective.loss(trainee, batch, dropout).sum.item<double>();
      value.sub_(direction, distance);
      return loss;
    };
    const double numeric = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    const at::Tensor gradient = value.grad();
    const double ours = gradient.defined() ? (gradient * direction).sum().item<double>() : 0;
    EXPECT_NEAR(ours, numeric, 1e-5 * std::max(1.0, std::abs(numeric))) << name;
  }
}

TEST_F(TandemTraining, GradientsEqualFiniteDifferencesInEveryConfiguration) {
  for (const auto& config : {model::tiny_config(), model::tiny_llama(3)}) {
    const data::Corpus corpus(folder_ / (config.encoder_decoder ? "train.h5" : "copy.h5"));
    for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothSecondaryLoss,
                                     TandemConfiguration::kBothBothLosses}) {
      SCOPED_TRACE(config.family + " " + tandem_configuration_names()[static_cast<size_t>(configuration)]);
      Pair pair(config, at::kDouble);
      TandemTrainee trainee = pair.trainee(configuration);
      expect_right_gradients(trainee, make_batch(corpus, {0, 1, 2, 3}, trainee.info(), 24));
    }
  }
}

TEST_F(TandemTraining, BothLossesAreTheSecondarysAndThePrimarys) {
  Pair pair(model::tiny_config());
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, pair.secondary->info());
  const at::NoGradGuard no_grad;
  const auto loss = [&](Trainee& trainee) { return CrossEntropy({}).loss(trainee, batch, {}); };
  PlainTrainee alone(*pair.primary);
  TandemTrainee secondary = pair.trainee(TandemConfiguration::kBothSecondaryLoss);
  TandemTrainee both = pair.trainee(TandemConfiguration::kBothBothLosses);
  const double expected = loss(alone).sum.item<double>() + loss(secondary).sum.item<double>();
  EXPECT_NEAR(loss(both).sum.item<double>(), expected, 1e-4 * expected);
  EXPECT_EQ(loss(both).count, batch.label_count());
}

TEST_F(TandemTraining, TheTeacherItOffersIsItsPrimary) {
  Pair pair(model::tiny_config());
  TandemTrainee trainee = pair.trainee(TandemConfiguration::kBothBothLosses);
  require_gradients(trainee, true);
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, trainee.info());
  const TraineeOutput output = trainee.forward(batch, {});
  ASSERT_TRUE(output.teacher.has_value());
  EXPECT_FALSE(output.teacher->hidden.requires_grad());
  EXPECT_LT(model::difference(output.teacher->hidden, hidden_at_labels(*pair.primary, batch, {})), 1e-6);
  EXPECT_TRUE(output.predictions[0].taught);
  EXPECT_FALSE(output.predictions[1].taught);
}

// Blocks are counted from the start of each text, not of the row.
TEST_F(TandemTraining, PackedRowsHaveTheLossOfTheirTexts) {
  Pair pair(model::tiny_llama(3), at::kDouble);
  TandemTrainee trainee = pair.trainee(TandemConfiguration::kPrimaryFrozen);
  const data::Corpus corpus(folder_ / "copy.h5");
  const at::NoGradGuard no_grad;
  CrossEntropy objective({});
  double alone = 0;
  for (int64_t i = 0; i < 7; ++i) {
    alone += objective.loss(trainee, make_batch(corpus, {i}, trainee.info()), {}).sum.item<double>();
  }
  const Batch packed = make_batch(corpus, {0, 1, 2, 3, 4, 5, 6}, trainee.info(), 24);
  ASSERT_LT(packed.decoder_input.lengths.size(), 7u);
  EXPECT_NEAR(objective.loss(trainee, packed, {}).sum.item<double>(), alone, 1e-9 * alone);
}

TEST_F(TandemTraining, AFrozenPrimaryStaysAndIsNamedByTheResult) {
  Pair pair(model::tiny_config());
  const Weights primary = copy_of(*pair.primary), secondary = copy_of(*pair.secondary);
  const TrainResult result = train(pair, {}, options(), "run");
  EXPECT_EQ(changed(primary, *pair.primary), 0);
  EXPECT_EQ(changed(secondary, *pair.secondary), static_cast<int64_t>(secondary.size()));
  EXPECT_FALSE(std::filesystem::exists(result.model / "primary"));
  const model::Tandem stored = model::load_tandem(result.model, {.secondary = {.pack = false}});
  EXPECT_EQ(changed(copy_of(*pair.secondary), *stored.secondary), 0);
  // It runs packed as well as plain.
  pair.primary->pack();
  TandemTrainee packed = pair.trainee(TandemConfiguration::kPrimaryFrozen);
  require_gradients(packed, true);
  const data::Corpus corpus(folder_ / "train.h5");
  CrossEntropy({}).loss(packed, make_batch(corpus, {0, 1}, packed.info()), {}).sum.backward();
  EXPECT_TRUE(pair.secondary->parameters().at("decoder.0.primary_projection.weight").grad().defined());
}

TEST_F(TandemTraining, AFrozenPrimaryIsCopiedWhereThatIsWanted) {
  Pair pair(model::tiny_config());
  const TrainResult result = train(pair, {.copy_primary = true}, options(), "run");
  std::filesystem::remove_all(folder_ / "primary");
  const model::Tandem stored = model::load_tandem(result.model, {.primary = {.pack = false}});
  EXPECT_EQ(changed(copy_of(*pair.primary), *stored.primary), 0);
}

TEST_F(TandemTraining, ATrainedPrimaryChangesAndLiesInTheResult) {
  for (const auto configuration : {TandemConfiguration::kBothSecondaryLoss, TandemConfiguration::kBothBothLosses}) {
    const std::string name = tandem_configuration_names()[static_cast<size_t>(configuration)];
    SCOPED_TRACE(name);
    Pair pair(model::tiny_config());
    const Weights primary = copy_of(*pair.primary), secondary = copy_of(*pair.secondary);
    const TrainResult result = train(pair, {.configuration = configuration}, options(), name);
    EXPECT_GT(changed(primary, *pair.primary), static_cast<int64_t>(primary.size()) / 2);
    EXPECT_EQ(changed(secondary, *pair.secondary), static_cast<int64_t>(secondary.size()));
    const model::Tandem stored =
        model::load_tandem(result.model, {.secondary = {.pack = false}, .primary = {.pack = false}});
    EXPECT_EQ(changed(copy_of(*pair.primary), *stored.primary), 0);
    EXPECT_EQ(changed(copy_of(*pair.secondary), *stored.secondary), 0);
  }
}

nlohmann::json summary_of(const TrainResult& result) {
  return nlohmann::json::parse(read_file(result.model.parent_path() / "validation.json"));
}

// The two stages of Tandem-Distil. Alpha is against the primary, which no teacher was named for.
TEST_F(TandemTraining, TheLossFallsInBothStages) {
  Pair pair(model::tiny_config());
  TrainOptions training = options();
  training.dropout = 0;
  training.optimizer.lr = 1e-2;
  training.length = "1 steps";
  const auto before = summary_of(train(pair, {}, training, "before"));
  training.length = "40 steps";
  const auto first = summary_of(train(pair, {}, training, "first"));
  EXPECT_LT(first["model"]["loss"].get<double>(), before["model"]["loss"].get<double>() - 0.2);
  training.objective.name = "distill";
  training.objective.distill.lambda = 0.5;
  const auto second = summary_of(train(pair, {}, training, "second"));
  EXPECT_GT(second["model"]["alpha"].get<double>(), first["model"]["alpha"].get<double>() + 0.02);
}

TEST_F(TandemTraining, TheSummaryHoldsTheKeptModelsMeasuresAndTheLast) {
  Pair pair(model::tiny_config());
  TrainOptions training = options();
  training.validation.every = "2 steps";
  training.optimizer.lr = 0.5;  // soon worse
  training.schedule = {};
  const TrainResult result = train(pair, {}, training, "run");
  const auto summary = summary_of(result);
  EXPECT_EQ(summary["model"]["step"], result.state.best_step);
  EXPECT_EQ(summary["model"]["loss"].get<double>(), *result.state.best_value);
  EXPECT_EQ(summary["last"]["step"], 6);
}

TEST_F(TandemTraining, AResumedRunEndsWithTheSameBitsOfBothModels) {
  TrainOptions training = options();
  training.length = "8 steps";
  training.checkpoint_every = "";
  const TandemTraineeOptions both{.configuration = TandemConfiguration::kBothBothLosses};
  Pair whole(model::tiny_config());
  train(whole, both, training, "whole");
  for (int stops = 0; stops < 2; ++stops) {
    Pair pair(model::tiny_config());
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(train(pair, both, training, "stopped"), Interrupted);
  }
  Pair other_start(model::tiny_config(), at::kFloat, 8);  // whose weights the checkpoint replaces
  train(other_start, both, training, "stopped");
  for (const char* file :
       {"model/model.safetensors", "model/primary/model.safetensors", "checkpoints/last/model/model.safetensors",
        "checkpoints/last/model/primary/model.safetensors", "checkpoints/last/optimizer.safetensors"}) {
    EXPECT_TRUE(read_file(folder_ / "whole" / file) == read_file(folder_ / "stopped" / file)) << file;
  }
}

TEST_F(TandemTraining, Bf16AutocastTrainsBothModelsOverFp32Weights) {
  for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
    const std::string name = tandem_configuration_names()[static_cast<size_t>(configuration)];
    Pair pair(model::tiny_config());
    if (configuration == TandemConfiguration::kPrimaryFrozen) {
      saved_primary(pair);
      pair.primary->pack();
    }
    TrainOptions training = options();
    training.precision = "bf16";
    training.objective.name = "distill";
    const TrainResult result = train(pair, {.configuration = configuration}, training, "bf16 " + name);
    EXPECT_LT(summary_of(result)["model"]["loss"].get<double>(), 5) << name;
    const at::Tensor weight = pair.secondary->parameters().at("encoder_projection.weight");
    EXPECT_FALSE(weight.to(at::kBFloat16).to(at::kFloat).equal(weight)) << name;
  }
}

TEST_F(TandemTraining, WhatDoesNotFitIsRefusedNamingBoth) {
  Pair pair(model::tiny_config()), other(model::tiny_llama(3));
  pair.secondary->set_name("small");
  other.primary->set_name("large");
  const std::string message = error_of([&] { TandemTrainee(*pair.secondary, *other.primary, {}); });
  EXPECT_NE(message.find("small"), std::string::npos) << message;
  EXPECT_NE(message.find("large"), std::string::npos) << message;
}

}  // namespace
}  // namespace draftsmith::train
