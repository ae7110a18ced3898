// Decoding with a drafter that shares its target's encoder: identities with the target, losslessness, distributions of
// samples, measures, and what does not fit together.
#include "model/models/shared_encoder.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/registry.h"
#include "infer/forced/teacher_forcing.h"
#include "model/files/checkpoint.h"
#include "model/models/companion.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

TEST(SharedEncoderDrafter, LosslessMethodsWriteTheTargetsOutputAtEveryBatchSizeAndWindow) {
  std::vector<TandemPair> pairs;
  pairs.push_back(identity_shared_encoder(kNoise));
  pairs.push_back(random_shared_encoder());
  const auto expected = ids_of(pairs[0].run(tandem_options("greedy")));
  for (const TandemPair& pair : pairs) {
    for (const char* window : {"fixed", "fallback"}) {
      for (const int64_t batch : {1, 2, 5, 8}) {
        DecodeOptions options = tandem_options("assisted", 3, batch);
        options.window_rule = window;
        ASSERT_EQ(ids_of(pair.run(options)), expected) << window << " batch " << batch;
      }
    }
  }
  expect_lossless_otherwise(pairs[0], 5);
  const DecodeStats noisy = total(pairs[0].run(tandem_options("assisted", 4, 5)));
  EXPECT_GT(noisy.accepted, noisy.drafted / 5);
  EXPECT_LT(noisy.accepted, noisy.drafted);
}

// The drafter's own samples are far from the target's distribution, which the second expectation shows.
TEST(SharedEncoderDrafter, SamplesAreDistributedAsTheTargets) {
  const PairSamples samples = sample_pair(identity_shared_encoder(1.0, 5));
  EXPECT_LT(samples.deviate, 4.5);
  EXPECT_LT(samples.stats.accepted, samples.stats.drafted * 95 / 100);
}

TEST(SharedEncoderDrafter, AlphaOverTextsIsThatOfTheDistributions) {
  const TandemPair pair = random_shared_encoder();
  const GenerationModels models = pair.models();
  const std::vector<Ids> sources = {{5, 9, 14, 3, 1}}, outputs = {{4, 19, 3, 8, 8, 21, 2, 1}};
  const at::NoGradGuard no_gradients;
  model::ForwardInput input{.source = {at::tensor(sources[0], at::kLong).view({1, -1}), {5}},
                            .target = {at::tensor(Ids{0, 4, 19, 3, 8, 8, 21, 2}, at::kLong).view({1, -1}), {8}}};
  const auto target = pair.primary->forward(input);
  const auto p = pair.primary->head(target.hidden).softmax(-1);
  input.shared_encoder = target.encoder;
  const auto q = pair.secondary->head(pair.secondary->forward(input).hidden).softmax(-1);
  const auto forced = models.drafter->forced_alpha(models.draft_target(), {sources, outputs}, {.temperature = 1}, 0);
  EXPECT_EQ(forced.positions, 8);
  EXPECT_NEAR(forced.alpha, at::minimum(p, q).sum(-1).mean().item<double>(), 1e-6);
  const TandemPair same = identity_shared_encoder();
  const GenerationModels own = same.models();
  EXPECT_NEAR(own.drafter->forced_alpha(own.draft_target(), {sources, outputs}, {.temperature = 1}, 0).alpha, 1, 1e-9);
}

class SharedEncoderFiles : public ::testing::Test {
 protected:
  SharedEncoderFiles() {
    model::save_model(root_ / "target", target_);
    model::save_with_companion(root_ / "drafter", *drafter_, root_ / "target");
  }

  TemporaryDirectory root_;
  model::TransformerModel target_{model::t5_config(), 1};
  std::unique_ptr<model::TransformerModel> drafter_ =
      model::make_shared_encoder_drafter(model::TransformerModel(model::t5_config({.width = 8}), 2), target_);
};

TEST_F(SharedEncoderFiles, ADirectoryIsKnownByItsKind) {
  const DrafterSpec spec = parse_drafter(root_ / "drafter");
  EXPECT_EQ(spec.kind, DrafterKind::kModel);
  const SharedDrafter loaded = load_drafter(spec, root_ / "target", {});
  EXPECT_TRUE(loaded->transformer()->config().shares_encoder());
  EXPECT_FALSE(loaded->reads_target()) << "the Tandem methods need more";
  EXPECT_EQ(loaded->standalone(), nullptr);
  EXPECT_EQ(loaded->path(), root_ / "drafter");
  const DraftTarget target{target_};
  EXPECT_EQ(loaded->make(target)->traits().name, "model");
}

TEST_F(SharedEncoderFiles, TargetsThatDoNotFitAreRefused) {
  model::save_model(root_ / "other", model::TransformerModel(model::t5_config(), 5));
  const DrafterSpec spec = parse_drafter(root_ / "drafter");
  EXPECT_THAT(error_of([&] { load_drafter(spec, root_ / "other", {}); }),
              AllOf(HasSubstr("another target"), HasSubstr((root_ / "other").string())));
  const auto problems_with = [&](const model::TransformerConfig& config) {
    model::TransformerModel target(config, 3);
    Problems problems;
    load_drafter(spec, {}, {})->check({target}, problems);
    return text_of(problems.list());
  };
  EXPECT_EQ(problems_with(model::t5_config()), "");
  EXPECT_THAT(problems_with(model::t5_config({.width = 32})), HasSubstr("the width of its encoder states"));
  EXPECT_THAT(problems_with(model::t5_config({.vocabulary = 50})), HasSubstr("vocabularies of different sizes"));
  EXPECT_THAT(problems_with(model::tiny_llama()), HasSubstr("no encoder"));
  // The Tandem methods need more.
  const GenerationModels models{.target = &target_, .drafter = load_drafter(spec, root_ / "target", {})};
  EXPECT_THAT(error_of([&] { Generator(models, tandem_options("tandem-speed")); }), HasSubstr("a Tandem secondary"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
