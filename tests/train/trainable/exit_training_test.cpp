// Training with losses at several layers, and of heads of a frozen model: weights, gradients, what stays as it is,
// results that load, exact resume.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/fixtures.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

namespace fs = std::filesystem;

const ExitTrainingOptions kCalm{.loss = "calm_weighted"};
const ExitTrainingOptions kOwnNorms{
    .loss = "weighted", .layers = {1, 2}, .weights = {0.3, 0.5, 1.5}, .own_norms = true};

class ExitTraining : public TandemTraining {};

TEST(ExitLosses, HaveTheirLayersAndWeights) {
  EXPECT_THAT(loss_weights(kCalm, 4), ElementsAre(0.1, 0.2, 0.3, 0.4));
  EXPECT_EQ(exit_config(kCalm, 4).exits.size(), 3u);
  EXPECT_EQ(exit_config(kCalm, 4).exits.back().layer, 3);
  EXPECT_EQ(exit_config(kCalm, 4).trained_as, "calm_weighted");
  EXPECT_THAT(loss_weights({}, 6), ElementsAre(0.5, 0.5));  // an average: of one exit and the last layer
  EXPECT_EQ(exit_config(ExitTrainingOptions{}, 6).exits.at(0).layer, 1);
  EXPECT_EQ(exit_config({.layers = {4}, .own_norms = true}, 6).exits.at(0).layer, 4);
  EXPECT_TRUE(exit_config({.layers = {4}, .own_norms = true}, 6).exits.at(0).own_norm);
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

// Against the definition, with the head that decoding reads exits through.
TEST_F(ExitTraining, TheLossIsTheWeightedSumOfTheLayersLosses) {
  const at::NoGradGuard no_grad;
  for (const model::TransformerConfig& config : exit_configs()) {
    SCOPED_TRACE(config.family);
    ExitPair pair(config, kCalm, at::kDouble);
    const data::Corpus corpus = corpus_for(config);
    const Batch batch = make_batch(corpus, {0, 1, 2, 3}, pair.trainable.info());
    const auto layers =
        pair.model->forward({.source = batch.source, .target = batch.decoder_input, .hidden_layers = {1, 2, 3}}).layers;
    double expected = 0;
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor log_probs = pair.model->exit_head(at_labels(layers[i], batch)).log_softmax(1);  // [P,V]
      const double share = -log_probs.gather(1, batch.labels.unsqueeze(1)).sum().item<double>();
      expected += static_cast<double>(i + 1) / 6 * share;
    }
    const Loss loss = make_objective({})->loss(pair.trainable, batch, {});
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-9 * expected);
    EXPECT_EQ(loss.count, batch.label_count());
  }
}

TEST_F(ExitTraining, EachExitLearnsAndTheBestModelIsOfAllLosses) {
  ExitPair pair(exit_configs().front(), kCalm);
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationResult before = validate(pair.trainable, {.corpus = &validation}, {});
  TrainOptions training = learning("40 steps");
  train(pair.trainable, training, "run");
  const ValidationResult after = validate(pair.trainable, {.corpus = &validation}, {});
  ASSERT_EQ(after.exits.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(after.exits[i].loss, before.exits[i].loss - 0.1);
  PlainTrainable alone(*pair.model);
  EXPECT_EQ(after.loss, validate(alone, {.corpus = &validation}, {}).loss);
  // CALM weighs layer i by i / (1 + 2 + 3).
  const double together = after.loss * 3 / 6 + after.exits[1].loss * 2 / 6 + after.exits[0].loss / 6;
  EXPECT_NEAR(after.weighted_loss.value(), together, 1e-12);
  EXPECT_EQ(value_of(after, "loss"), after.weighted_loss.value());
}

TEST_F(ExitTraining, ItResumesWithTheSameBits) {
  for (const ExitTrainingOptions& losses : {kCalm, kOwnNorms}) {
    SCOPED_TRACE(losses.loss);
    const TemporaryDirectory runs;
    std::vector<std::string> files = {"model.safetensors"};
    if (losses.own_norms) files.push_back("draftsmith/exits/exits.safetensors");
    const auto run = [&](uint64_t seed, const std::string& name) {
      ExitPair pair(exit_configs().front(), losses, at::kFloat, seed);
      train(pair.trainable, resumed_options(), runs / name);
    };
    expect_exact_resume(runs.path(), run, files);
  }
}

std::string form_of(const HeadOptions& options) {
  return options.form + (options.own_norms ? " with norms" : "");
}

class HeadTraining : public ExitTraining {
 protected:
  fs::path saved_base(const model::TransformerConfig& config) const {
    auto directory = folder_ / "base";
    if (!fs::exists(directory)) model::save_model(directory, *model::varied_model(config, 3, at::kFloat));
    return directory;
  }
  TrainOptions head_options() const {
    TrainOptions training = learning(options().length);
    training.dropout.reset();
    return training;
  }
};

TEST_F(HeadTraining, GradientsEqualFiniteDifferences) {
  for (const model::TransformerConfig& config : exit_configs()) {
    for (const HeadOptions& options : head_forms()) {
      SCOPED_TRACE(config.family + " " + form_of(options));
      HeadPair pair(config, options, at::kDouble);
      vary(pair.heads, 5);
      const data::Corpus corpus = corpus_for(config);
      expect_right_gradients(pair.trainable, make_batch(corpus, {0, 1, 2, 3}, pair.trainable.info(), 24));
      for (const auto& [name, value] : pair.heads.parameters()) EXPECT_GT(largest(value.grad()), 0) << name;
    }
  }
}

TEST_F(HeadTraining, HeadsBeginAsTheModelsOwn) {
  const at::NoGradGuard no_grad;
  for (const HeadOptions& options : head_forms()) {
    SCOPED_TRACE(form_of(options));
    HeadPair pair(exit_configs().front(), options, at::kDouble);
    const data::Corpus corpus(folder_ / "train.h5");
    const Batch batch = make_batch(corpus, {0, 1, 2}, pair.trainable.info());
    const model::ForwardInput input{
        .source = batch.source, .target = batch.decoder_input, .hidden_layers = options.layers};
    const auto layers = pair.model->forward(input).layers;
    const TrainableOutput output = pair.trainable.forward(batch, {});
    ASSERT_EQ(output.predictions.size(), options.layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      const Predictions& head = output.predictions[i];
      EXPECT_EQ(head.layer, options.layers[i]);
      EXPECT_LT(difference(logits(head, head.hidden), pair.model->exit_head(at_labels(layers[i], batch))), 1e-12);
    }
  }
}

TEST_F(HeadTraining, TheModelStaysAsItIs) {
  for (const HeadOptions& options : head_forms()) {
    SCOPED_TRACE(form_of(options));
    const auto config = exit_configs().front();
    HeadPair pair(config, options, at::kFloat, 3, saved_base(config));
    const Weights before = copy_of(*pair.model);
    Weights heads;
    for (const auto& [name, value] : pair.heads.parameters()) heads[name] = value.detach().clone();
    const TrainResult result = train(pair.trainable, head_options(), "run " + form_of(options));
    EXPECT_EQ(changed(before, *pair.model), 0);
    for (const auto& [name, value] : before) EXPECT_FALSE(pair.model->parameters().at(name).requires_grad()) << name;
    for (const auto& [name, value] : heads) EXPECT_FALSE(pair.heads.parameters().at(name).equal(value)) << name;
    EXPECT_TRUE(read_file(result.model / "model.safetensors") == read_file(folder_ / "base/model.safetensors"));
  }
}

TEST_F(HeadTraining, MeasuresAreMeansOverTheHeadsBesideEachOnes) {
  HeadPair pair(exit_configs().front(), {.layers = {1, 2}});
  vary(pair.heads, 5);
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationResult result = validate(pair.trainable, {.corpus = &validation}, {});
  ASSERT_EQ(result.exits.size(), 2u);
  EXPECT_NE(result.exits[0].loss, result.exits[1].loss);
  EXPECT_NEAR(result.loss, (result.exits[0].loss + result.exits[1].loss) / 2, 1e-6);
  EXPECT_NEAR(result.accuracy, (result.exits[0].accuracy + result.exits[1].accuracy) / 2, 1e-9);
  EXPECT_NEAR(*result.overlap, (*result.exits[0].overlap + *result.exits[1].overlap) / 2, 1e-6);
  EXPECT_EQ(result.labels, validation.info().target_tokens);
}

TEST_F(HeadTraining, ItResumesWithTheSameBits) {
  const auto config = exit_configs().front();
  TrainOptions training = resumed_options();
  training.dropout.reset();
  for (const HeadOptions& options : head_forms()) {
    SCOPED_TRACE(form_of(options));
    const TemporaryDirectory runs;
    const auto run = [&](uint64_t seed, const std::string& name) {
      HeadPair pair(config, options, at::kFloat, seed, saved_base(config));
      train(pair.trainable, training, runs / name);
    };
    expect_exact_resume(runs.path(), run,
                        {"model.safetensors", "draftsmith/exits/exits.safetensors", "draftsmith/exits/exits.json"},
                        {"exits.safetensors", "exits.json"});
  }
}

}  // namespace
}  // namespace draftsmith::train
