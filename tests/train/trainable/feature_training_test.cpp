// Training of features drafters: right gradients through all unrolled steps, nothing of the target changes, packed
// rows, the drafter comes to agree with its target, runs resume with the same bits.
#include <ATen/core/grad_mode.h>

#include "base/device_tensors.h"
#include "model/files/checkpoint.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "tests/train/trainable/fixtures.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainable/trainable_features.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

// A target and a drafter of random weights that reads its features.
struct Reading {
  explicit Reading(const model::TransformerConfig& config, at::ScalarType type = at::kFloat, uint64_t seed = 3,
                   const model::DraftVocabulary& vocabulary = {}, bool block = false)
      : target(model::varied_model(with_test_vocabulary(config), 3, type)),
        drafter(model::make_feature_drafter(*target, {.decoder_layers = 2,
                                                      .vocabulary = vocabulary,
                                                      .block = block,
                                                      .markov_rank = block ? 2 : 0,
                                                      .random = true,
                                                      .seed = seed})) {
    if (block) drafter->parameters().at("feature_markov.next.weight").fill_(0.3).select(0, 4).neg_();
  }

  std::unique_ptr<model::TransformerModel> target, drafter;
};

class FeatureTraining : public TandemTraining {
 protected:
  TrainResult train(Reading& pair, const TrainOptions& training, const std::string& run) const {
    if (!std::filesystem::exists(folder_ / "target")) model::save_model(folder_ / "target", *pair.target);
    FeatureTrainable trainable(*pair.drafter, *pair.target, {.target_directory = folder_ / "target"});
    return TandemTraining::train(trainable, training, run);
  }
};

TEST_F(FeatureTraining, GradientsEqualFiniteDifferences) {
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    const data::Corpus corpus = corpus_for(config);
    for (const auto& vocabulary : {model::DraftVocabulary{}, model::DraftVocabulary{{0, 1, 3, 4, 5, 7, 9}, 3}}) {
      for (const bool block : {false, true}) {
        SCOPED_TRACE(config.family);
        Reading pair(config, at::kDouble, 3, vocabulary, block);
        FeatureTrainable trainable(*pair.drafter, *pair.target, {});
        expect_right_gradients(trainable, make_batch(corpus, {0, 1, 2, 3}, trainable.info(), 24));
      }
    }
  }
}

// Checks what a loss does not read and passes leave out: outputs at prompts, logits of ids that the drafter lacks.
TEST_F(FeatureTraining, PackedRowsHaveTheLossOfTheirTextsAndThePredictionsOfTheWholePass) {
  const model::DraftVocabulary vocabulary{{0, 1, 3, 4, 5, 7, 9}, 3};
  const data::Corpus corpus(folder_ / "copy.h5");
  const at::NoGradGuard no_grad;
  for (const bool block : {false, true}) {
    Reading pair(model::tiny_llama(3), at::kDouble, 3, vocabulary, block);
    FeatureTrainable trainable(*pair.drafter, *pair.target, {});
    const auto loss = [&](int64_t pack) {
      const Batch batch = make_batch(corpus, {0, 1, 2, 3, 4, 5}, trainable.info(), pack);
      return make_objective({})->loss(trainable, batch, {}).sum.item<double>();
    };
    EXPECT_NEAR(loss(24), loss(0), 1e-9 * loss(0));
    const Batch batch = make_batch(corpus, {0, 1, 2, 3, 4, 5}, trainable.info(), 24);
    const TrainableOutput output = trainable.forward(batch, {});
    ASSERT_EQ(output.predictions.size(), 3U);
    EXPECT_NEAR(output.predictions[2].weight, 0.64 / 2.44, 1e-12);
    model::ForwardInput input = input_of(batch);
    input.hidden_layers = pair.drafter->config().features.layers;
    const auto layers = pair.target->forward(input).layers;
    const auto whole = pair.drafter->forward_features({.target = batch.decoder_input, .layers = layers, .steps = 3});
    for (size_t step = 0; step < 3; ++step) {
      const at::Tensor found = output.predictions[step].hidden.narrow(1, 0, pair.drafter->config().width);
      EXPECT_LT(difference(found, at_labels(whole[step], batch)), 1e-12) << block << " " << step;
    }
    HiddenTeacher teacher(*output.teacher);
    const at::Tensor all = at::arange(batch.label_count(), at::kLong), ids = at::tensor(vocabulary.ids, at::kLong);
    EXPECT_LT(difference(teacher.block(all, ids).logits, teacher.block(all, {}).logits.index_select(1, ids)), 1e-12);
    const AutocastScope products(at::kCPU, true);
    EXPECT_EQ(teacher.block(all, {}).logits.scalar_type(), at::kDouble) << "logits are not rounded to bf16";
  }
}

// The target's layers are NaN where states are cached: only its embedding, last norm and head are read.
TEST_F(FeatureTraining, CachedStatesGiveTheLiveLossesWithoutAPassOfTheTarget) {
  const at::NoGradGuard no_grad;
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    SCOPED_TRACE(config.family);
    const data::Corpus corpus = corpus_for(config);
    Reading live(config), broken(config);
    FeatureTrainable passes(*live.drafter, *live.target, {});
    data::TeacherCacheInfo info{.k = 4, .vocabulary = kTestVocabulary, .states = {.layers = {}, .width = config.width}};
    for (int64_t layer = 0; layer <= config.decoder_layers; ++layer) info.states.layers.push_back(layer);
    const StoredRows rows = TeacherLogits(*live.target, corpus, info, 64).rows(0, 40, [](int64_t) {});
    data::write_teacher_cache(folder_ / "t.h5", info, rows.by_example(corpus, 0, 40));
    const data::TeacherCache cache(folder_ / "t.h5");
    FeatureTrainable reads(*broken.drafter, *broken.target, {.states = {cache, &corpus}});
    for (const auto& [name, value] : broken.target->parameters()) {
      if (name.find("attention") != std::string::npos) value.detach().fill_(std::nan(""));
    }
    for (const int64_t pack : {0, 24}) {
      if (pack > 0 && config.encoder_decoder) continue;
      const Batch batch = make_batch(corpus, {7, 0, 12, 3, 31}, passes.info(), pack);
      EXPECT_EQ(batch.decoder_input.segments.empty(), pack == 0);
      for (const std::string name : {"cross_entropy", "distill"}) {
        const ObjectiveOptions objective{.name = name, .distill = {.lambda = name == "distill" ? 0 : 0.5}};
        const auto loss = [&](FeatureTrainable& trainable) {
          return make_objective(objective, {&trainable, &corpus})->loss(trainable, batch, {}).sum.item<double>();
        };
        const double expected = loss(passes);
        EXPECT_NEAR(loss(reads), expected, 5e-3 * expected) << name << " " << pack;
      }
    }
    const data::Corpus other = corpus_for(config);
    const Batch batch = make_batch(other, {7}, passes.info());
    EXPECT_FALSE(at::isfinite(reads.forward(batch, {}).predictions.front().hidden).all().item<bool>()) << "a pass";
  }
}

TEST_F(FeatureTraining, ItComesToAgreeWithItsTargetWhichStays) {
  for (const bool block : {false, true}) {
    Reading pair(model::tiny_t5(), at::kFloat, 3, {}, block);
    const Weights target = copy_of(*pair.target), drafter = copy_of(*pair.drafter);
    FeatureTrainable trainable(*pair.drafter, *pair.target, {});
    const data::Corpus validation(folder_ / "validation.h5");
    const ValidationInputs inputs{.corpus = &validation, .teacher = pair.target.get()};
    const double before = *validate(trainable, inputs, {}).overlap;
    TrainOptions training = learning("60 steps");
    training.objective = {.name = "distill", .distill = {.lambda = 0}};
    const auto loss = [&] {  // of all steps
      const at::NoGradGuard no_grad;
      const auto objective = make_objective(training.objective, {.trainable = &trainable, .corpus = &validation});
      return objective->loss(trainable, make_batch(validation, {0, 1, 2}, trainable.info()), {}).sum.item<double>();
    };
    const double begun = loss();
    const TrainResult result = train(pair, training, block ? "block" : "run");
    EXPECT_LT(loss(), 0.9 * begun);
    EXPECT_GT(*validate(trainable, inputs, {}).overlap, before + 0.02);
    EXPECT_EQ(changed(target, *pair.target), 0);
    EXPECT_EQ(changed(drafter, *pair.drafter), static_cast<int64_t>(drafter.size()));
    const auto stored =
        model::load_with_companion(model::features_kind(), result.model, folder_ / "target", {.pack = false});
    EXPECT_EQ(changed(copy_of(*pair.drafter), *stored), 0);
  }
}

TEST_F(FeatureTraining, RunsResumeWithTheSameBits) {
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        Reading pair(model::tiny_t5(), at::kFloat, seed);
                        train(pair, resumed_options(), run);
                      },
                      {"model.safetensors"});
}

}  // namespace
}  // namespace draftsmith::train
