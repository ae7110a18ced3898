// Runs that train Tandems and models that work in blocks: exact resume, and bf16 beside fp32.

#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "tests/train/trainable/trainable_checks.h"
#include "train/trainable/tandem_trainables.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

class TandemRuns : public TandemTraining {
 protected:
  TrainOptions resumed_options() const {
    TrainOptions training = options();
    training.length = "8 steps";
    training.checkpoint_every = "";
    return training;
  }
  void train_on_texts(TrainableModel& trainable, const std::string& run) const {
    TrainOptions training = resumed_options();
    training.batches.pack_tokens = 24;
    const data::Corpus corpus(folder_ / "copy.h5");
    Trainer({.trainable = trainable, .corpus = corpus}, training, folder_ / run).run();
  }
};

TEST_F(TandemRuns, TrainedPrimariesResumeWithTheSameBits) {
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        Pair pair(model::tiny_t5(), at::kFloat, seed);
                        train(pair, {.configuration = TandemConfiguration::kBothBothLosses}, resumed_options(), run);
                      },
                      {"model.safetensors", "primary/model.safetensors"});
}

// The default: nothing of the primary is in the checkpoint.
TEST_F(TandemRuns, SecondariesOfAFrozenPackedPrimaryResumeWithTheSameBits) {
  const Pair first(model::tiny_t5());
  saved_primary(first);
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        Pair pair(model::tiny_t5(), at::kFloat, seed);
                        pair.primary = model::load_model(folder_ / "primary");
                        train(pair, {}, resumed_options(), run);
                      },
                      {"model.safetensors"});
}

TEST_F(TandemRuns, DeepTandemsResumeWithTheSameBits) {
  const model::TransformerConfig part = with_test_vocabulary(model::tiny_llama(2));
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        model::DeepTandemModel model({.large = part, .small = part, .block = 3}, seed);
                        DeepTandemTrainable trainable(model);
                        train_on_texts(trainable, run);
                      },
                      {"model.safetensors", "large/model.safetensors", "small/model.safetensors"});
}

TEST_F(TandemRuns, BlockPredictionResumesWithTheSameBits) {
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        model::TransformerModel model(
                            model::block_prediction_config(with_test_vocabulary(model::tiny_llama(2)), 3), seed);
                        BlockPredictionTrainable trainable(model);
                        train_on_texts(trainable, run);
                      },
                      {"model.safetensors"});
}

// Autocast, and a frozen primary that is itself bf16, as it is off the CPU.
TEST_F(TandemRuns, Bf16ComesCloseToFp32) {
  const data::Corpus corpus(folder_ / "train.h5");
  for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
    SCOPED_TRACE(tandem_configurations().name(configuration));
    const bool frozen = configuration == TandemConfiguration::kPrimaryFrozen;
    std::vector<StepResult> results;
    std::vector<double> losses;
    for (const bool bf16 : {false, true}) {
      Pair pair(model::tiny_t5());
      if (frozen) {
        saved_primary(pair);
        const at::ScalarType type = bf16 ? at::kBFloat16 : at::kFloat;
        pair.primary = model::load_model(folder_ / "primary", {.dtype = type});
      }
      TandemTrainable trainable = pair.trainable(configuration);
      const auto objective = make_objective({.name = "distill"}, {&trainable, &corpus, nullptr});
      require_gradients(trainable, true);
      results.push_back(accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}}, {.autocast = bf16}));
      const data::Corpus validation(folder_ / "validation.h5");
      losses.push_back(validate(trainable, {.corpus = &validation}, {}).loss);
    }
    EXPECT_EQ(results[0].labels, results[1].labels);
    EXPECT_NEAR(results[0].gradient_norm, results[1].gradient_norm, 0.03 * results[0].gradient_norm);
    EXPECT_NEAR(results[0].loss_sum, results[1].loss_sum, 0.03 * results[0].loss_sum);
    EXPECT_NEAR(losses[0], losses[1], 0.01 * losses[0]);
  }
}

TEST_F(TandemRuns, Bf16TrainingUpdatesFp32WeightsAsFp32Does) {
  for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
    const std::string name = tandem_configurations().name(configuration);
    SCOPED_TRACE(name);
    Pair start(model::tiny_t5());
    TandemTrainable untrained = start.trainable(configuration);
    const data::Corpus validation(folder_ / "validation.h5");
    const double before_training = validate(untrained, {.corpus = &validation}, {}).loss;
    std::vector<double> losses;
    for (const std::string precision : {"fp32", "bf16"}) {
      Pair pair(model::tiny_t5());
      const Weights before = copy_of(*pair.secondary);
      TrainOptions training = options();
      training.precision = precision;
      training.length = "20 steps";
      training.optimizer.lr = 1e-2;
      const TrainResult result = train(pair, {.configuration = configuration}, training, precision + name);
      losses.push_back(summary_of(result)["model"]["loss"].get<double>());
      EXPECT_EQ(changed(before, *pair.secondary), static_cast<int64_t>(before.size()));
      const at::Tensor weight = pair.secondary->parameters().at("encoder_projection.weight");
      EXPECT_FALSE(weight.to(at::kBFloat16).to(at::kFloat).equal(weight));
    }
    EXPECT_LT(losses[0], before_training - 0.05);
    EXPECT_NEAR(losses[1], losses[0], 0.1 * (before_training - losses[0]));
  }
}

// The secondary drafts for the primary, whatever teacher there is.
TEST_F(TandemRuns, AValidationDecodesWithTheTandem) {
  Pair pair(model::tiny_t5());
  TandemTrainable trainable = pair.trainable(TandemConfiguration::kPrimaryFrozen);
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationOptions drafting{.draft_examples = 8, .draft_temperature = 1, .max_new_tokens = 10};
  const DraftMeasures found = validate(trainable, {.corpus = &validation}, drafting).drafts.value();
  for (const double part : {found.alpha, found.alpha_forced, found.agreement}) {
    EXPECT_GE(part, 0);
    EXPECT_LE(part, 1 + 1e-6);
  }
  EXPECT_GT(found.alpha_forced, 0);
  EXPECT_GE(found.tokens_per_target_run, 1);
}

// Padding of one tokenizer's vocabulary to two sizes is none of the tokenizer's ids.
TEST_F(TandemRuns, AValidationDecodesWithATandemWhoseVocabulariesArePaddedToOtherSizes) {
  const Pair pair(model::tiny_t5());
  model::TransformerConfig padded = pair.primary->config();
  padded.vocabulary += 4;
  const auto primary = model::varied_model(padded, 3, at::kFloat);
  TandemTrainable trainable(*pair.secondary, *primary, {.configuration = TandemConfiguration::kPrimaryFrozen});
  const data::Corpus validation(folder_ / "validation.h5");
  const infer::testing::Pieces tokenizer(kTestVocabulary, "none");
  const ValidationOptions drafting{.draft_examples = 8, .draft_temperature = 1, .max_new_tokens = 10};
  const DraftMeasures found =
      validate(trainable, {.corpus = &validation, .tokenizer = &tokenizer}, drafting).drafts.value();
  EXPECT_GE(found.tokens_per_target_run, 1);
}

}  // namespace
}  // namespace draftsmith::train
