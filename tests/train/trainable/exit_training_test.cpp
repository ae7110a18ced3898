// Training with losses at several layers: weights, gradients, results that load, exact resume.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "train/objectives/distill.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ExitTrainingOptions kCalm{.loss = "calm_weighted"};
const ExitTrainingOptions kOwnNorms{
    .loss = "weighted", .layers = {1, 2}, .weights = {0.3, 0.5, 1.5}, .own_norms = true};

// -log q(label) of each label, summed, from whole logits [P,V].
double cross_entropy_by_definition(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.log_softmax(1).gather(1, labels.unsqueeze(1)).sum().neg().item<double>();
}

TEST(ExitLosses, CalmWeighsEachLayerByItsNumber) {
  EXPECT_THAT(loss_weights(kCalm, 4), ElementsAre(0.1, 0.2, 0.3, 0.4));
  std::vector<int64_t> layers;
  for (const auto& exit : exit_config(kCalm, 4).exits) layers.push_back(exit.layer);
  EXPECT_THAT(layers, ElementsAre(1, 2, 3));
  EXPECT_EQ(exit_config(kCalm, 4).trained_as, "calm_weighted");
}

TEST(ExitLosses, AnAverageIsOfOneExitAndTheLastLayer) {
  EXPECT_THAT(loss_weights({}, 6), ElementsAre(0.5, 0.5));
  EXPECT_EQ(exit_config(ExitTrainingOptions{}, 6).exits.at(0).layer, 1);
  EXPECT_EQ(exit_config({.layers = {4}, .own_norms = true}, 6).exits.at(0).layer, 4);
  EXPECT_TRUE(exit_config({.layers = {4}, .own_norms = true}, 6).exits.at(0).own_norm);
}

TEST(ExitLosses, WeightsAreTakenAsTheyAre) {
  EXPECT_THAT(loss_weights(kOwnNorms, 3), ElementsAre(0.3, 0.5, 1.5));
}

TEST_F(ExitTraining, GradientsEqualFiniteDifferences) {
  const auto configs = exit_configs();
  const ExitTrainingOptions average{.layers = {2}};
  for (const auto& [config, losses] : {std::pair{configs[0], average},
                                       {configs[0], kOwnNorms},
                                       {configs[1], kCalm},
                                       {configs[2], kOwnNorms},
                                       {configs[3], kCalm},
                                       {configs[3], kOwnNorms}}) {
    SCOPED_TRACE(config.family + " " + losses.loss);
    ExitPair pair(config, losses, at::kDouble);
    vary(pair.exits, 5);
    const data::Corpus corpus = corpus_for(config);
    expect_right_gradients(pair.trainable, make_batch(corpus, {0, 1}, pair.trainable.info(), 24));
  }
}

// Every parameter of an exit's own norm has one.
TEST_F(ExitTraining, OwnNormsAreTrained) {
  ExitPair pair(exit_configs().back(), kOwnNorms);
  const data::Corpus corpus = corpus_for(pair.model->config());
  require_gradients(pair.trainable, true);
  CrossEntropy({}).loss(pair.trainable, make_batch(corpus, {0, 1}, pair.trainable.info()), {}).sum.backward();
  ASSERT_EQ(pair.exits.parameters().size(), 4u);
  for (const auto& [name, value] : pair.exits.parameters()) {
    EXPECT_TRUE(pair.trainable.parameters().at("exits." + name).is_same(value)) << name;
    EXPECT_GT(largest(value.grad()), 0) << name;
  }
}

// Against the definition, with the head that decoding reads exits through.
TEST_F(ExitTraining, TheLossIsTheWeightedSumOfTheLayersLosses) {
  const at::NoGradGuard no_grad;
  for (const model::TransformerConfig& config : exit_configs()) {
    SCOPED_TRACE(config.family);
    ExitPair pair(config, kCalm, at::kDouble);
    const data::Corpus corpus = corpus_for(config);
    const Batch batch = make_batch(corpus, {0, 1, 2, 3}, pair.trainable.info());
    model::ForwardInput input;
    input.source = batch.source;
    input.target = batch.decoder_input;
    input.hidden_layers = {1, 2, 3};
    const auto layers = pair.model->forward(input).layers;
    double expected = 0;
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor logits = pair.model->exit_head(at_labels(layers[i], batch));
      expected += static_cast<double>(i + 1) / 6 * cross_entropy_by_definition(logits, batch.labels);
    }
    const Loss loss = CrossEntropy({}).loss(pair.trainable, batch, {});
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-9 * expected);
    EXPECT_EQ(loss.count, batch.label_count());
  }
}

TEST_F(ExitTraining, ATeacherTeachesEveryExit) {
  const at::NoGradGuard no_grad;
  ExitPair pair(exit_configs().front(), kOwnNorms, at::kDouble);
  vary(pair.exits, 5);
  const auto teacher = model::varied_model(pair.model->config(), 9);
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, pair.trainable.info());
  LiveTeacher source(*teacher);
  const DistillationTerms terms{.lambda = 0.25};
  const TrainableOutput output = pair.trainable.forward(batch, {});
  double expected = 0;
  for (const Predictions& one : output.predictions) {
    EXPECT_TRUE(one.taught);
    TrainableOutput alone{.predictions = {one}};
    alone.predictions.front().weight = 1;
    const Loss loss = distillation_loss(alone, *source.distributions(batch), source.vocabulary(), terms);
    expected += one.weight * loss.sum.item<double>();
  }
  const auto objective =
      make_objective({.name = "distill", .distill = {.lambda = 0.25}}, {&pair.trainable, &corpus, &source});
  EXPECT_NEAR(objective->loss(pair.trainable, batch, {}).sum.item<double>(), expected, 1e-9 * expected);
}

TEST_F(ExitTraining, TheResultIsAnOrdinaryModelWithItsExitsInside) {
  ExitPair pair(exit_configs().front(), kOwnNorms);
  const TrainResult result = train(pair.trainable, options(), "run");
  const auto stored = model::load_model(result.model, {.pack = false});
  EXPECT_EQ(changed(copy_of(*pair.model), *stored), 0);
  const auto exits = model::load_exits(model::exits_directory(result.model), result.model, *stored);
  EXPECT_EQ(exits->config().trained_as, "weighted");
  EXPECT_EQ(exits->config().model, "run/model");
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = at::randn({5, stored->config().width});
  for (const int64_t layer : {1, 2}) {
    EXPECT_TRUE(exits->logits(*stored, layer, hidden).equal(pair.exits.logits(*pair.model, layer, hidden)));
  }
  // A checkpoint's are bound to nothing, and say so where they are used.
  const auto checkpoint = folder_ / "run/checkpoints/last/model";
  EXPECT_THAT(error_of([&] { model::load_exits(model::exits_directory(checkpoint), checkpoint, *stored); }),
              HasSubstr("bound to no model"));
}

TEST_F(ExitTraining, EachExitsMeasuresAreInTheSummary) {
  ExitPair pair(exit_configs().front(), kCalm);
  TrainOptions training = options();
  training.dropout = 0;
  training.optimizer.lr = 1e-2;
  training.length = "1 steps";
  const auto before = summary_of(train(pair.trainable, training, "before"))["model"];
  training.length = "40 steps";
  const auto after = summary_of(train(pair.trainable, training, "after"))["model"];
  ASSERT_EQ(after["exits"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after["exits"][i]["layer"], i + 1);
    EXPECT_LT(after["exits"][i]["loss"].get<double>(), before["exits"][i]["loss"].get<double>() - 0.1);
    EXPECT_TRUE(after["exits"][i].contains("accuracy"));
  }
  // The model's own are those of the model alone.
  PlainTrainable alone(*pair.model);
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationResult measured = validate(pair.trainable, {.corpus = &validation}, {});
  EXPECT_EQ(measured.loss, validate(alone, {.corpus = &validation}, {}).loss);
  // The best model is the one whose losses together are least: CALM weighs layer i by i / (1 + 2 + 3).
  const double together = measured.loss * 3 / 6 + measured.exits[1].loss * 2 / 6 + measured.exits[0].loss / 6;
  EXPECT_NEAR(measured.weighted_loss.value(), together, 1e-12);
  EXPECT_EQ(value_of(measured, "loss"), measured.weighted_loss.value());
  EXPECT_EQ(after["weighted_loss"].is_number(), true);
}

TEST_F(ExitTraining, ItResumesWithTheSameBits) {
  for (const ExitTrainingOptions& losses : {kCalm, kOwnNorms}) {
    SCOPED_TRACE(losses.loss);
    const TemporaryDirectory runs;
    std::vector<std::string> files = {"model.safetensors"};
    if (losses.own_norms) files.push_back("draftsmith/exits/exits.safetensors");
    expect_exact_resume(
        runs.path(),
        [&](uint64_t seed, const std::string& run) {
          ExitPair pair(exit_configs().front(), losses, at::kFloat, seed);
          const data::Corpus corpus(folder_ / "train.h5");
          Trainer({.trainable = pair.trainable, .corpus = corpus}, resumed_options(), runs / run).run();
        },
        files);
  }
}

TEST_F(ExitTraining, Bf16ComesCloseToFp32) {
  const auto config = exit_configs().front();
  const data::Corpus corpus = corpus_for(config);
  for (const ExitTrainingOptions& losses : {kCalm, kOwnNorms}) {
    SCOPED_TRACE(losses.loss);
    std::vector<StepResult> results;
    for (const bool bf16 : {false, true}) {
      ExitPair pair(config, losses);
      CrossEntropy objective({});
      require_gradients(pair.trainable, true);
      results.push_back(accumulate_gradients(pair.trainable, objective, corpus, {{0, 1, 2, 3}}, {.autocast = bf16}));
    }
    EXPECT_NEAR(results[0].gradient_norm, results[1].gradient_norm, 0.03 * results[0].gradient_norm);
    EXPECT_NEAR(results[0].loss_sum, results[1].loss_sum, 0.03 * results[0].loss_sum);
  }
}

}  // namespace
}  // namespace draftsmith::train
