// Training of drafters that share their target's encoder: right gradients, nothing of the target changes, the loss
// falls, runs resume with the same bits, and the drafter writes and drafts during training.
#include <gmock/gmock.h>

#include "model/models/shared_encoder.h"
#include "tests/support/errors.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/train/trainable/fixtures.h"
#include "train/teacher/student_samples.h"
#include "train/trainable/tandem_trainables.h"

namespace draftsmith::train {
namespace {

// A target and a smaller drafter that shares its encoder.
struct Sharing {
  explicit Sharing(at::ScalarType type = at::kFloat, uint64_t seed = 3)
      : target(model::varied_model(with_test_vocabulary(model::tiny_t5()), seed, type)),
        drafter(model::make_shared_encoder_drafter(
            *model::varied_model(model::smaller(target->config()), seed + 1, type), *target, {.seed = seed})) {}

  std::unique_ptr<model::TransformerModel> target, drafter;
};

class SharedEncoderTraining : public TandemTraining {
 protected:
  TrainResult train(Sharing& pair, const TrainOptions& training, const std::string& run, bool teaches = false) const {
    if (!std::filesystem::exists(folder_ / "target")) model::save_model(folder_ / "target", *pair.target);
    SharedEncoderTrainable trainable(*pair.drafter, *pair.target,
                                     {.target_directory = folder_ / "target", .teaches = teaches});
    return TandemTraining::train(trainable, training, run);
  }
};

TEST_F(SharedEncoderTraining, GradientsEqualFiniteDifferences) {
  const data::Corpus corpus(folder_ / "train.h5");
  for (const bool teaches : {false, true}) {
    Sharing pair(at::kDouble);
    SharedEncoderTrainable trainable(*pair.drafter, *pair.target, {.teaches = teaches});
    expect_right_gradients(trainable, make_batch(corpus, {0, 1, 2, 3}, trainable.info(), 0));
  }
}

TEST_F(SharedEncoderTraining, TheTargetStaysAndIsNamedByTheResult) {
  Sharing pair;
  const Weights target = copy_of(*pair.target), drafter = copy_of(*pair.drafter);
  const TrainResult result = train(pair, options(), "run");
  EXPECT_EQ(changed(target, *pair.target), 0);
  EXPECT_EQ(changed(drafter, *pair.drafter), static_cast<int64_t>(drafter.size()));
  const auto stored = model::load_shared_encoder(result.model, folder_ / "target", {.pack = false});
  EXPECT_EQ(changed(copy_of(*pair.drafter), *stored), 0);
  EXPECT_TRUE(std::filesystem::equivalent(model::shared_encoder_target(result.model), folder_ / "target"));
}

// It reads the same from a packed target as from a plain one, with its decoder or without.
TEST_F(SharedEncoderTraining, TheLossDoesNotDependOnHowTheTargetRuns) {
  const data::Corpus corpus(folder_ / "train.h5");
  Sharing pair;
  const at::NoGradGuard no_grad;
  std::vector<double> losses;
  for (const bool packed : {false, true}) {
    if (packed) pair.target->pack();
    for (const bool teaches : {false, true}) {
      SharedEncoderTrainable trainable(*pair.drafter, *pair.target, {.teaches = teaches});
      const Batch batch = make_batch(corpus, {0, 1, 2, 3}, trainable.info());
      losses.push_back(CrossEntropy({}).loss(trainable, batch, {}).sum.item<double>());
    }
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses.front(), 1e-4 * losses.front());
}

TEST_F(SharedEncoderTraining, TheTeacherItOffersIsItsTarget) {
  Sharing pair;
  const data::Corpus corpus(folder_ / "train.h5");
  SharedEncoderTrainable silent(*pair.drafter, *pair.target, {});
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, silent.info());
  EXPECT_FALSE(silent.forward(batch, {}).teacher.has_value());
  SharedEncoderTrainable teaching(*pair.drafter, *pair.target, {.teaches = true});
  require_gradients(teaching, true);
  const TrainableOutput output = teaching.forward(batch, {});
  ASSERT_TRUE(output.teacher.has_value());
  EXPECT_FALSE(output.teacher->hidden.requires_grad());
  EXPECT_LT(difference(output.teacher->hidden, hidden_at_labels(*pair.target, batch, {})), 1e-6);
}

TEST_F(SharedEncoderTraining, TheLossFallsAndThenTheOverlapRises) {
  Sharing pair;
  TrainOptions training = options();
  training.dropout = 0;
  training.optimizer.lr = 1e-2;
  training.length = "1 steps";
  const auto before = summary_of(train(pair, training, "before"));
  training.length = "40 steps";
  const auto first = summary_of(train(pair, training, "first", true));
  EXPECT_LT(first["model"]["loss"].get<double>(), before["model"]["loss"].get<double>() - 0.2);
  training.objective.name = "distill";
  training.objective.distill.lambda = 0.5;
  const auto second = summary_of(train(pair, training, "second", true));
  EXPECT_GT(second["model"]["overlap"].get<double>(), first["model"]["overlap"].get<double>() + 0.02);
}

TEST_F(SharedEncoderTraining, RunsResumeWithTheSameBits) {
  model::save_model(folder_ / "target", *Sharing().target);
  expect_exact_resume(folder_.path(),
                      [&](uint64_t seed, const std::string& run) {
                        Sharing pair(at::kFloat, seed);
                        pair.target = model::load_model(folder_ / "target");
                        train(pair, resumed_options(), run);
                      },
                      {"model.safetensors"});
}

// The drafter is right about its own target, so all drafts are accepted, and its own outputs are the target's.
TEST_F(SharedEncoderTraining, AValidationWritesAndDraftsWithTheTargetsEncoder) {
  Sharing pair;
  const auto same = model::make_shared_encoder_drafter(*pair.target, *pair.target, {model::ProjectionStart::kIdentity});
  SharedEncoderTrainable trainable(*same, *pair.target, {});
  const data::Corpus validation(folder_ / "validation.h5");
  const infer::testing::Pieces tokenizer(kTestVocabulary, "none");
  const ValidationInputs inputs{.corpus = &validation, .tokenizer = &tokenizer};
  const ValidationOptions wanted{
      .bleu_examples = 8, .draft_examples = 8, .draft_window = 3, .draft_temperature = 1, .max_new_tokens = 10};
  EXPECT_NO_THROW(check_validation(trainable, inputs, wanted));
  const ValidationResult result = validate(trainable, inputs, wanted);
  EXPECT_NEAR(result.drafts->alpha_forced, 1, 1e-5);
  EXPECT_NEAR(result.drafts->alpha, 1, 1e-5);
  PlainTrainable alone(*pair.target);
  EXPECT_EQ(result.bleu, validate(alone, inputs, {.bleu_examples = 8, .max_new_tokens = 10}).bleu);
}

// Samples of the student, which decodes with its target's encoder.
TEST_F(SharedEncoderTraining, LearnsFromItsOwnSamples) {
  Sharing pair;
  SharedEncoderTrainable trainable(*pair.drafter, *pair.target, {.teaches = true});
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch given = make_batch(corpus, {0, 1, 2, 3}, trainable.info());
  const OnPolicyOptions on_policy{.share = 1, .temperature = 0, .max_new_tokens = 9};
  EXPECT_FALSE(StudentSamples(on_policy, corpus).batch(trainable, given, 7).labels.equal(given.labels));
  TrainOptions training = options();
  training.objective.name = "distill";
  training.objective.distill.on_policy = on_policy;
  EXPECT_NO_THROW(train(pair, training, "on-policy", true));
}

TEST_F(SharedEncoderTraining, ATargetOfAnotherWidthIsRefused) {
  const Sharing pair;
  model::TransformerConfig wide = pair.target->config();
  wide.width += 4;
  const auto other = model::varied_model(wide, 3, at::kFloat);
  EXPECT_THAT(error_of([&] { SharedEncoderTrainable(*pair.drafter, *other, {}); }),
              testing::HasSubstr("the width of its encoder states"));
}

}  // namespace
}  // namespace draftsmith::train
