// Training of heads of a frozen model: gradients, what stays as it is, results that load, exact resume.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/model_directory.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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
    TrainOptions training = options();
    training.dropout.reset();
    training.optimizer.lr = 1e-2;
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
      for (const auto& [name, value] : pair.heads.parameters()) {
        EXPECT_GT(largest(value.grad()), 0) << name;
      }
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
    model::ForwardInput input;
    input.source = batch.source;
    input.target = batch.decoder_input;
    input.hidden_layers = options.layers;
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

// They share a pass, but learn alone.
TEST_F(HeadTraining, HeadsTrainedTogetherAreThoseTrainedAlone) {
  const auto config = exit_configs().front();
  TrainOptions training = head_options();
  training.clip_norm = 0;
  training.keep = "last";
  HeadPair both(config, {.layers = {1, 2}, .own_norms = true}, at::kFloat, 3, saved_base(config));
  train(both.trainable, training, "both");
  for (const int64_t layer : {1, 2}) {
    HeadPair alone(config, {.layers = {layer}, .own_norms = true}, at::kFloat, 3, saved_base(config));
    train(alone.trainable, training, "alone " + std::to_string(layer));
    for (const auto& [name, value] : alone.heads.parameters()) {
      EXPECT_LT(difference(both.heads.parameters().at(name), value), 1e-6) << name;
    }
  }
}

TEST_F(HeadTraining, TheResultIsACopyOfTheModelWithItsHeadsInside) {
  const auto config = exit_configs().front();
  const fs::path base = saved_base(config);
  write_file_atomic(base / "notes.txt", "the model's own");
  fs::create_directories(base / "draftsmith/exits");
  write_file_atomic(base / "draftsmith/exits/exits.json", "others");
  HeadPair pair(config, {.layers = {1, 2}, .form = "low_rank", .rank = 2}, at::kFloat, 3, base);
  const TrainResult result = train(pair.trainable, head_options(), "run");
  EXPECT_EQ(read_file(result.model / "notes.txt"), "the model's own");
  EXPECT_EQ(read_file(base / "draftsmith/exits/exits.json"), "others");
  const at::NoGradGuard no_grad;
  const auto stored = model::load_model(result.model);
  const auto heads = model::load_exits(model::exits_directory(result.model), result.model, *stored);
  EXPECT_EQ(heads->config().trained_as, "heads");
  EXPECT_EQ(heads->config().model, "@target/model");
  const at::Tensor hidden = at::randn({5, config.width});
  for (const int64_t layer : {1, 2}) {
    EXPECT_LT(
        difference(
            heads->logits(*stored, layer, hidden),
            pair.heads.finish(*pair.model, layer, hidden).mm(model::dense(pair.heads.head(*pair.model, layer)).t())),
        1e-4);
  }
  // They may lie anywhere, but are of this model.
  EXPECT_NO_THROW(model::load_exits(model::exits_directory(result.model), base, *stored));
  const auto other = model::varied_model(config, 4, at::kFloat);
  model::save_model(folder_ / "other", *other);
  EXPECT_THAT(error_of([&] { model::load_exits(model::exits_directory(result.model), folder_ / "other", *other); }),
              HasSubstr("another model"));
}

TEST_F(HeadTraining, AModelThatChangesMeanwhileIsNoticed) {
  const auto config = exit_configs().front();
  const fs::path base = saved_base(config);
  HeadPair pair(config, {.layers = {1}}, at::kFloat, 3);
  HeadTrainable trainable(*pair.model, pair.heads,
                          {.directory = base, .name = "@target/model", .hash = model::model_hash(base)});
  fs::remove_all(base);
  model::save_model(base, *model::varied_model(config, 4, at::kFloat));
  EXPECT_THAT(error_of<RunError>([&] { trainable.save_result(folder_ / "result", {}); }),
              HasSubstr("the model changed while heads were trained for it"));
  EXPECT_FALSE(fs::exists(folder_ / "result"));
}

TEST_F(HeadTraining, TheLastLayerTeachesThem) {
  const auto config = exit_configs().front();
  HeadPair pair(config, {.layers = {1, 2}, .own_norms = true}, at::kFloat, 3, saved_base(config));
  TrainOptions training = head_options();
  training.objective.name = "distill";
  training.objective.distill.lambda = 0;
  training.validation.measure = "overlap";
  const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
  const Batch batch = make_batch(corpus, {0, 1}, pair.trainable.info());
  EXPECT_TRUE(pair.trainable.forward(batch, {}).teacher->hidden.equal(hidden_at_labels(*pair.model, batch, {})));
  const ValidationResult before = validate(pair.trainable, {.corpus = &validation}, {});
  training.length = "40 steps";
  train(pair.trainable, training, "run");
  const ValidationResult after = validate(pair.trainable, {.corpus = &validation}, {});
  for (size_t i = 0; i < 2; ++i) EXPECT_GT(*after.exits[i].overlap, *before.exits[i].overlap + 0.02);
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
  const fs::path base = saved_base(config);
  for (const HeadOptions& options : head_forms()) {
    SCOPED_TRACE(form_of(options));
    const TemporaryDirectory runs;
    expect_exact_resume(runs.path(),
                        [&](uint64_t seed, const std::string& run) {
                          HeadPair pair(config, options, at::kFloat, seed, base);
                          const data::Corpus corpus(folder_ / "train.h5");
                          TrainOptions training = resumed_options();
                          training.dropout.reset();
                          Trainer({.trainable = pair.trainable, .corpus = corpus}, training, runs / run).run();
                        },
                        {"model.safetensors", "draftsmith/exits/exits.safetensors", "draftsmith/exits/exits.json"},
                        {"exits.safetensors", "exits.json"});
  }
}

TEST_F(HeadTraining, Bf16ComesCloseToFp32) {
  const auto config = exit_configs().front();
  const data::Corpus corpus(folder_ / "train.h5");
  for (const HeadOptions& options : head_forms()) {
    SCOPED_TRACE(form_of(options));
    std::vector<StepResult> results;
    for (const bool bf16 : {false, true}) {
      HeadPair pair(config, options);
      vary(pair.heads, 5);
      const auto objective = make_objective({.name = "distill"}, {&pair.trainable, &corpus, nullptr});
      require_gradients(pair.trainable, true);
      results.push_back(accumulate_gradients(pair.trainable, *objective, corpus, {{0, 1, 2, 3}}, {.autocast = bf16}));
    }
    EXPECT_NEAR(results[0].gradient_norm, results[1].gradient_norm, 0.03 * results[0].gradient_norm);
    EXPECT_NEAR(results[0].loss_sum, results[1].loss_sum, 0.03 * results[0].loss_sum);
  }
}

}  // namespace
}  // namespace draftsmith::train
