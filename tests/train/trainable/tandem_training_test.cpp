// Training of Tandems: right gradients in every configuration, only what is to be trained changes, it learns and
// resumes exactly, and its result decodes with its primary.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/fixtures.h"
#include "train/training_step.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

TEST_F(TandemTraining, GradientsEqualFiniteDifferencesInEveryConfiguration) {
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    const data::Corpus corpus = corpus_for(config);
    for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothSecondaryLoss,
                                     TandemConfiguration::kBothBothLosses}) {
      SCOPED_TRACE(config.family + " " + tandem_configurations().name(configuration));
      Pair pair(config, at::kDouble);
      TandemTrainable trainable = pair.trainable(configuration);
      expect_right_gradients(trainable, make_batch(corpus, {0, 1, 2, 3}, trainable.info(), 24));
    }
  }
}

TEST_F(TandemTraining, BothLossesAreTheSecondarysAndThePrimarysWhoTeaches) {
  Pair pair(model::tiny_t5());
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, pair.secondary->info());
  PlainTrainable alone(*pair.primary);
  TandemTrainable secondary = pair.trainable(TandemConfiguration::kBothSecondaryLoss);
  TandemTrainable both = pair.trainable(TandemConfiguration::kBothBothLosses);
  require_gradients(both, true);
  const TrainableOutput output = both.forward(batch, {});
  EXPECT_FALSE(output.teacher.value().hidden.requires_grad());
  EXPECT_TRUE(output.predictions[0].taught);
  EXPECT_FALSE(output.predictions[1].taught);
  const at::NoGradGuard no_grad;
  EXPECT_LT(difference(output.teacher->hidden, hidden_at_labels(*pair.primary, batch, {})), 1e-5);
  const auto loss = [&](TrainableModel& trainable) { return make_objective({})->loss(trainable, batch, {}); };
  const double expected = loss(alone).sum.item<double>() + loss(secondary).sum.item<double>();
  EXPECT_NEAR(loss(both).sum.item<double>(), expected, 1e-4 * expected);
  EXPECT_EQ(loss(both).count, batch.label_count());
}

// Blocks are counted from the start of each text, not of the row.
TEST_F(TandemTraining, PackedRowsHaveTheLossOfTheirTexts) {
  Pair pair(model::tiny_llama(3), at::kDouble);
  TandemTrainable trainable = pair.trainable(TandemConfiguration::kPrimaryFrozen);
  const data::Corpus corpus(folder_ / "copy.h5");
  const at::NoGradGuard no_grad;
  const auto objective = make_objective({});
  double alone = 0;
  for (int64_t i = 0; i < 7; ++i) {
    alone += objective->loss(trainable, make_batch(corpus, {i}, trainable.info()), {}).sum.item<double>();
  }
  const Batch packed = make_batch(corpus, {0, 1, 2, 3, 4, 5, 6}, trainable.info(), 24);
  ASSERT_LT(packed.decoder_input.lengths.size(), 7u);
  EXPECT_NEAR(objective->loss(trainable, packed, {}).sum.item<double>(), alone, 1e-9 * alone);
}

TEST_F(TandemTraining, AFrozenPrimaryStaysAndIsNamedByTheResult) {
  Pair pair(model::tiny_t5());
  const Weights primary = copy_of(*pair.primary), secondary = copy_of(*pair.secondary);
  const TrainResult result = train(pair, {}, options(), "run");
  EXPECT_EQ(changed(primary, *pair.primary), 0);
  EXPECT_EQ(changed(secondary, *pair.secondary), static_cast<int64_t>(secondary.size()));
  EXPECT_FALSE(std::filesystem::exists(result.model / "primary"));
  const model::Tandem stored = model::load_tandem(result.model, {.secondary = {.pack = false}});
  EXPECT_EQ(changed(copy_of(*pair.secondary), *stored.secondary), 0);
  // It runs packed as well as plain.
  pair.primary->pack();
  TandemTrainable packed = pair.trainable(TandemConfiguration::kPrimaryFrozen);
  require_gradients(packed, true);
  const data::Corpus corpus(folder_ / "train.h5");
  make_objective({})->loss(packed, make_batch(corpus, {0, 1}, packed.info()), {}).sum.backward();
  EXPECT_TRUE(pair.secondary->parameters().at("decoder.0.primary_projection.weight").grad().defined());
}

// The two stages of Tandem-Distil. Alpha is against the primary, which no teacher was named for.
TEST_F(TandemTraining, TheLossFallsInBothStages) {
  Pair pair(model::tiny_t5());
  TrainOptions training = learning("1 steps");
  const auto before = summary_of(train(pair, {}, training, "before"));
  training.length = "40 steps";
  const auto first = summary_of(train(pair, {}, training, "first"));
  EXPECT_LT(first["model"]["loss"].get<double>(), before["model"]["loss"].get<double>() - 0.2);
  training.objective = {.name = "distill", .distill = {.lambda = 0.5}};
  const auto second = summary_of(train(pair, {}, training, "second"));
  EXPECT_GT(second["model"]["overlap"].get<double>(), first["model"]["overlap"].get<double>() + 0.02);
}

// Learned positions end; what is beyond them would be read as the last one.
TEST_F(TandemTraining, TextsThatAreTooLongForEitherModelAreRefused) {
  for (const auto& [of_primary, of_secondary, shortest] : {std::tuple{6, 64, 6}, {64, 7, 7}, {0, 5, 5}, {6, 0, 6}}) {
    const auto with_context = [&](model::TransformerConfig config, int64_t context) {
      if (context == 0) config.positions = model::Positions::kAlibi;
      config.max_positions = context;
      return model::varied_model(with_test_vocabulary(config), 3, at::kFloat);
    };
    const auto primary = with_context(model::tiny_gpt2(), of_primary);
    const auto ordinary = with_context(model::smaller(model::tiny_gpt2()), of_secondary);
    const auto secondary = model::make_tandem_secondary(*ordinary, *primary);
    TandemTrainable trainable(*secondary, *primary, {});
    const data::Corpus corpus(folder_ / "copy.h5");
    EXPECT_THAT(error_of([&] { run_training({.trainable = trainable, .corpus = corpus}, options(), folder_ / "run"); }),
                AllOf(HasSubstr("longer than the model's positions"),
                      HasSubstr("at most " + std::to_string(shortest) + " tokens")));
  }
}

TEST_F(TandemTraining, TrainedPrimariesResumeWithTheSameBits) {
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        Pair pair(model::tiny_t5(), at::kFloat, seed);
                        train(pair, {.configuration = TandemConfiguration::kBothBothLosses}, resumed_options(), run);
                      },
                      {"model.safetensors", "primary/model.safetensors"});
}

// The default: nothing of the primary is in the checkpoint.
TEST_F(TandemTraining, SecondariesOfAFrozenPackedPrimaryResumeWithTheSameBits) {
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

// Autocast, and a frozen primary that is itself bf16, as it is off the CPU.
TEST_F(TandemTraining, Bf16ComesCloseToFp32) {
  const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
  for (const auto configuration : {TandemConfiguration::kPrimaryFrozen, TandemConfiguration::kBothBothLosses}) {
    SCOPED_TRACE(tandem_configurations().name(configuration));
    std::vector<double> losses;
    expect_bf16_near_fp32([&](bool bf16) {
      Pair pair(model::tiny_t5());
      if (configuration == TandemConfiguration::kPrimaryFrozen) {
        pair.primary = model::load_model(saved_primary(pair), {.dtype = bf16 ? at::kBFloat16 : at::kFloat});
      }
      TandemTrainable trainable = pair.trainable(configuration);
      const auto objective = make_objective({.name = "distill"}, {&trainable, &corpus, nullptr});
      require_gradients(trainable, true);
      const StepResult result = accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}}, {.autocast = bf16});
      losses.push_back(validate(trainable, {.corpus = &validation}, {}).loss);
      return result;
    });
    EXPECT_NEAR(losses[0], losses[1], 0.01 * losses[0]);
  }
}

// The secondary drafts for the primary. Padding of one tokenizer's vocabulary to two sizes is none of its ids.
TEST_F(TandemTraining, AValidationDecodesWithATandemWhoseVocabulariesArePaddedToOtherSizes) {
  const Pair pair(model::tiny_t5());
  model::TransformerConfig padded = pair.primary->config();
  padded.vocabulary += 4;
  const auto primary = model::varied_model(padded, 3, at::kFloat);
  TandemTrainable trainable(*pair.secondary, *primary, {.configuration = TandemConfiguration::kPrimaryFrozen});
  EXPECT_EQ(trainable.info().vocabulary, kTestVocabulary);
  const data::Corpus validation(folder_ / "validation.h5");
  const infer::testing::Pieces tokenizer(kTestVocabulary, "none");
  const ValidationOptions drafting{.draft_examples = 8, .draft_temperature = 1, .max_new_tokens = 10};
  const DraftMeasures found =
      validate(trainable, {.corpus = &validation, .tokenizer = &tokenizer}, drafting).drafts.value();
  EXPECT_GT(found.alpha_forced, 0);
  EXPECT_LT(found.alpha_forced, 1);
  EXPECT_GE(found.tokens_per_target_run, 1);
}

}  // namespace
}  // namespace draftsmith::train
