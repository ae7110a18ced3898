// Training of features drafters: right gradients through all unrolled steps, nothing of the target changes, packed
// rows, the drafter comes to agree with its target, runs resume with the same bits.
#include <ATen/core/grad_mode.h>

#include "model/files/checkpoint.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "tests/train/trainable/fixtures.h"
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

TEST_F(FeatureTraining, PackedRowsHaveTheLossOfTheirTexts) {
  for (const bool block : {false, true}) {
    Reading pair(model::tiny_llama(3), at::kDouble, 3, {}, block);
    FeatureTrainable trainable(*pair.drafter, *pair.target, {});
    const data::Corpus corpus(folder_ / "copy.h5");
    const at::NoGradGuard no_grad;
    const auto loss = [&](int64_t pack) {
      const Batch batch = make_batch(corpus, {0, 1, 2, 3, 4, 5}, trainable.info(), pack);
      return make_objective({})->loss(trainable, batch, {}).sum.item<double>();
    };
    EXPECT_NEAR(loss(24), loss(0), 1e-9 * loss(0));
    const TrainableOutput output = trainable.forward(make_batch(corpus, {0, 1}, trainable.info()), {});
    ASSERT_EQ(output.predictions.size(), 3U);
    EXPECT_NEAR(output.predictions[2].weight, 0.64 / 2.44, 1e-12);
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
    TrainOptions training = options();
    training.dropout = 0;
    training.optimizer.lr = 1e-2;
    training.length = "60 steps";
    training.objective.name = "distill";
    training.objective.distill.lambda = 0;
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
