// Training of drafters that share their target's encoder: right gradients, nothing of the target changes, the loss
// falls, runs resume with the same bits, and the drafter writes and drafts during training.
#include <initializer_list>

#include <ATen/core/grad_mode.h>

#include "model/files/checkpoint.h"
#include "model/models/companion.h"
#include "model/models/shared_encoder.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/fixtures.h"
#include "train/trainable/tandem_trainables.h"
#include "train/validation.h"

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
  const auto stored =
      model::load_with_companion(model::shared_encoder_kind(), result.model, folder_ / "target", {.pack = false});
  EXPECT_EQ(changed(copy_of(*pair.drafter), *stored), 0);
  EXPECT_TRUE(std::filesystem::equivalent(model::companion_directory(model::shared_encoder_kind(), result.model),
                                          folder_ / "target"));
}

// It reads the same from a packed target as from a plain one, with its decoder or without; the target is its teacher.
TEST_F(SharedEncoderTraining, TheLossDoesNotDependOnHowTheTargetRuns) {
  const data::Corpus corpus(folder_ / "train.h5");
  Sharing pair;
  SharedEncoderTrainable silent(*pair.drafter, *pair.target, {}),
      teaching(*pair.drafter, *pair.target, {.teaches = true});
  const Batch batch = make_batch(corpus, {0, 1, 2, 3}, silent.info());
  EXPECT_FALSE(silent.forward(batch, {}).teacher.has_value());
  require_gradients(teaching, true);
  const TrainableOutput output = teaching.forward(batch, {});
  EXPECT_FALSE(output.teacher->hidden.requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_LT(difference(output.teacher->hidden, hidden_at_labels(*pair.target, batch, {})), 1e-6);
  std::vector<double> losses;
  for (const bool packed : {false, true}) {
    if (packed) pair.target->pack();
    for (TrainableModel* trainable : std::initializer_list<TrainableModel*>{&silent, &teaching}) {
      losses.push_back(make_objective({})->loss(*trainable, batch, {}).sum.item<double>());
    }
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses.front(), 1e-4 * losses.front());
}

TEST_F(SharedEncoderTraining, ItComesToAgreeWithItsTarget) {
  Sharing pair;
  SharedEncoderTrainable trainable(*pair.drafter, *pair.target, {.teaches = true});
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationInputs inputs{.corpus = &validation, .teacher = pair.target.get()};
  const double before = *validate(trainable, inputs, {}).overlap;
  TrainOptions training = learning("60 steps");
  training.objective = {.name = "distill", .distill = {.lambda = 0}};
  train(pair, training, "run", true);
  EXPECT_GT(*validate(trainable, inputs, {}).overlap, before + 0.02);
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

}  // namespace
}  // namespace draftsmith::train
