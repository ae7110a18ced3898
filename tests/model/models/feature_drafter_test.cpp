// Features drafters: steps over caches equal the unrolled pass for every family and form, plain and packed; their start
// from the target; directories.
#include "model/models/feature_drafter.h"

#include <array>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/language_models.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/families.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSequence = 9, kSteps = 3;

// A target and a drafter of it, with a batch of two rows of equal lengths.
struct FeaturePair {
  FeaturePair(const TransformerConfig& config, at::ScalarType type, FeatureStart start = {})
      : target(varied_model(config, 11, type)), batch(pair_batch(config, {kSequence, kSequence}, 5)) {
    start.random = true;
    start.unrolled = kSteps;
    drafter = make_feature_drafter(*target, start);
    for (const auto& [name, value] : drafter->parameters()) {
      if (name.ends_with("norm.weight") || name.ends_with(".bias")) {
        value.add_(normal_tensor(value.sizes().vec(), 0.2, 3, "varied/" + name, value.scalar_type()));
      }
      if (name.ends_with("relative_bias.weight")) value.mul_(8.0);
    }
  }

  ForwardOutput read() const {
    ForwardInput input = forward_input(batch);
    input.hidden_layers = drafter->config().features.layers;
    return target->forward(input);
  }

  FeatureInput input() const {
    ForwardOutput output = read();
    return {batch.target, std::move(output.layers), output.encoder, batch.source.lengths, kSteps};
  }

  std::unique_ptr<TransformerModel> target, drafter;
  PairBatch batch;
};

// Logits [B,V] of a draft's steps over the drafter's caches, which begins at token `base`: the first step reads the
// target's states up to it, the later ones the drafter's own output.
std::vector<at::Tensor> drafted_logits(const FeaturePair& pair, const FeatureInput& input, int64_t base) {
  TransformerModel& drafter = *pair.drafter;
  const TransformerConfig& config = drafter.config();
  const int64_t first = config.first_position(), rows = 2;
  const auto state = config.encoder_decoder ? drafter.begin(EncoderStates{input.encoder, input.source_lengths}, 16)
                                            : drafter.begin(rows, 16);
  at::Tensor states = drafter.project_features(input.layers).narrow(1, 0, kSequence - 1);
  states = at::cat({at::zeros_like(states.narrow(1, 0, 1)), states}, 1);
  const std::array<int64_t, 1> last{config.decoder_layers};
  std::vector<at::Tensor> logits;
  at::Tensor hidden = states.narrow(1, first, base + 1 - first), tokens = input.target.tokens;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t from = step == 0 ? first : base + step, count = hidden.size(1);
    const StepLayout layout = transformer_state(*state).append(std::vector<int64_t>(rows, count), count);
    const StepOutput output = drafter.run_part({.layers = {0, config.decoder_layers},
                                                .tokens = tokens.narrow(1, from, count),
                                                .hidden = hidden,
                                                .logits = Logits::kLast,
                                                .hidden_layers = last},
                                               layout, transformer_state(*state));
    logits.push_back(output.logits.select(1, 0).clone());
    hidden = output.hidden.front().narrow(1, count - 1, 1);
    if (!config.features.block) continue;
    tokens = at::full_like(tokens, kMaskToken);
    hidden = drafter.mask_state().expand_as(hidden);
  }
  return logits;
}

class Features : public testing::TestWithParam<TransformerConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, Features, testing::ValuesIn(tiny_models()), family_name);

TEST_P(Features, DraftsOverCachesAreThoseOfTheUnrolledPass) {
  const at::NoGradGuard no_grad;
  const TransformerConfig& config = GetParam();
  // States of decoder-only drafters begin with token 1, so rotations are by other fp32 numbers.
  const double exact = config.positions == Positions::kRotary ? 1e-6 : 1e-10;
  DraftVocabulary pruned;
  for (int64_t id = 0; id < config.vocabulary; id += id < 4 ? 1 : 2) pruned.ids.push_back(id);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const int64_t form : {0, 1, 2}) {
      const int64_t layers = form == 1 ? 2 : 1;
      FeaturePair pair(
          config, type,
          {.decoder_layers = layers, .vocabulary = form == 1 ? pruned : DraftVocabulary{}, .block = form == 2});
      const FeatureInput input = pair.input();
      std::vector<at::Tensor> expected;  // [B,T,V]
      for (const at::Tensor& hidden : pair.drafter->forward_features(input)) {
        expected.push_back(pair.drafter->head(hidden));
      }
      const double size = expected[0].nan_to_num(0, 0, 0).abs().max().item<double>();
      if (type == at::kFloat) {  // the programs of the CPU
        pair.target->pack();
        pair.drafter->pack();
        pair.drafter->borrow(*pair.target);
      }
      for (int64_t base = 2; base + kSteps <= kSequence; ++base) {
        const auto drafted = drafted_logits(pair, input, base);
        for (int64_t step = 0; step < kSteps; ++step) {
          const at::Tensor wanted = expected[static_cast<size_t>(step)].select(1, base + step);
          const at::Tensor found = drafted[static_cast<size_t>(step)];
          ASSERT_TRUE(found.isfinite().equal(wanted.isfinite()));
          const at::Tensor apart = (found.nan_to_num(0, 0, 0) - wanted.nan_to_num(0, 0, 0)).abs().max();
          ASSERT_LT(apart.item<double>(), size * (type == at::kDouble ? exact : 3e-4))
              << type << " form " << form << " base " << base << " step " << step;
        }
      }
    }
  }
}

// Texts that lie in one row have the predictions that they have alone.
TEST(FeaturePass, SequencesOfARowDoNotSeeEachOther) {
  const at::NoGradGuard no_grad;
  for (const TransformerConfig& config : {tiny_llama(3), tiny_gpt2()}) {
    FeaturePair pair(config, at::kDouble);
    PairBatch alone = pair.batch;
    pair.batch.target = {alone.target.tokens.view({1, 2 * kSequence}), {2 * kSequence}, {{kSequence, kSequence}}};
    const auto packed = pair.drafter->forward_features(pair.input());
    pair.batch = alone;
    const auto apart = pair.drafter->forward_features(pair.input());
    for (size_t step = 0; step < apart.size(); ++step) {
      EXPECT_LT(difference(packed[step].view(apart[step].sizes()), apart[step]), 1e-10) << config.family;
    }
  }
}

TEST(FeatureStarts, LayersAreTheTargetsLastOnesAndTheStateItsLastOne) {
  const auto target = varied_model(tiny_t5(), 3, at::kFloat);
  const auto drafter = make_feature_drafter(*target, {.decoder_layers = 2});
  const auto same = [&](const at::Tensor& own, const char* other) { return own.equal(target->parameters().at(other)); };
  const auto& own = drafter->parameters();
  EXPECT_TRUE(same(own.at("decoder.0.cross_attention.key.weight"), "decoder.1.cross_attention.key.weight"));
  EXPECT_TRUE(same(own.at("decoder.1.self_attention.query.weight"), "decoder.2.self_attention.query.weight"));
  EXPECT_TRUE(same(own.at("feature_norm.weight"), "decoder.2.self_attention.norm.weight"));
  EXPECT_TRUE(
      same(own.at("decoder.0.self_attention.value.weight").narrow(1, 20, 20), "decoder.1.self_attention.value.weight"));
  EXPECT_THAT(drafter->config().features.layers, ElementsAre(1, 3));
  const at::Tensor last = at::rand({1, 2, 20});
  EXPECT_TRUE(drafter->project_features({at::rand({1, 2, 20}), last}).allclose(last));
  EXPECT_THAT(error_of([&] { make_feature_drafter(*target, {.layers = {2, 1}}); }), HasSubstr("rising numbers"));
  EXPECT_THAT(error_of([&] { make_feature_drafter(*target, {.decoder_layers = 4}); }), HasSubstr("at most 3"));
}

TEST(FeatureDirectories, OfEveryFamilyLoadAsTheyWereSaved) {
  TemporaryDirectory root;
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    TransformerConfig config = tiny_of(family);
    if (family.name == "qwen3") config.projection_bias = config.output_bias = true;  // its attention_bias
    const auto target = varied_model(config, 3, at::kFloat);
    const fs::path place = root / family.name, own = root / (family.name + "-features");
    save_model(place, *target);
    const auto loaded_target = load_model(place, {.pack = false});
    DraftVocabulary pruned{{0, 1, 2, 3, 5, 8, 13}, 2};
    if (family.name > "m") pruned = {};
    const auto drafter = make_feature_drafter(*loaded_target, {.decoder_layers = 2,
                                                               .vocabulary = pruned,
                                                               .block = family.name > "c",
                                                               .markov_rank = family.name > "g" ? 3 : 0});
    save_with_companion(own, *drafter, place);
    check_model_directory(own);
    EXPECT_EQ(kind_of_directory(own), features_kind());
    const auto loaded = load_with_companion(features_kind(), own, place, {.pack = false});
    EXPECT_EQ(loaded->config().draft_vocabulary.ids, pruned.ids);
    ASSERT_EQ(loaded->parameters().size(), drafter->parameters().size());
    for (const auto& [name, value] : drafter->parameters()) {
      EXPECT_TRUE(loaded->parameters().at(name).equal(value)) << name;
    }
  }
}

TEST(FeatureDirectories, OthersTargetsAndMissingTensorsAreRefused) {
  TemporaryDirectory root;
  for (const uint64_t seed : {1, 2}) save_model(root / std::to_string(seed), TransformerModel(tiny_mt5(), seed));
  save_model(root / "narrow", TransformerModel(t5_config({.vocabulary = 23, .width = 16}), 1));
  const auto target = load_model(root / "1", {.pack = false});
  const auto drafter = make_feature_drafter(*target);
  const fs::path own = root / "drafter";
  save_with_companion(own, *drafter, root / "1");
  const auto loading = [&](const char* name) {
    return error_of([&] { load_with_companion(features_kind(), own, root / name); });
  };
  EXPECT_THAT(loading("2"), AllOf(HasSubstr("belongs to another target"), HasSubstr((root / "2").string())));
  EXPECT_THAT(loading("narrow"), AllOf(HasSubstr("the width"), HasSubstr("the target's layers")));
  EXPECT_THAT(error_of([&] { load_model(own); }), HasSubstr("--drafter DIR"));
  TransformerConfig pruned = tiny_mt5();
  pruned.draft_vocabulary = {{0, 1, 2}, 2};
  EXPECT_THAT(error_of([&] {
                require_feature_pair(drafter->config(), pruned, {"a", "b"});
              }),
              HasSubstr("a pruned vocabulary"));

  const auto with = [&](const std::string& key, const std::string& value) {
    auto config = load_json(own / "config.json");
    (key == "num_decoder_layers" ? config : config["draftsmith_features"])[key] = nlohmann::json::parse(value);
    write_file_atomic(own / "config.json", config.dump());
    return error_of([&] { check_model_directory(own); });
  };
  EXPECT_THAT(with("num_decoder_layers", "2"), AllOf(HasSubstr("decoder.block.1."), HasSubstr("missing")));
  EXPECT_THAT(with("layers", "[3]"), HasSubstr("feature_projection.weight"));
  EXPECT_THAT(with("markov_rank", "2"), HasSubstr("a drafter that reads its tokens"));
  EXPECT_THAT(with("block", "true"), HasSubstr("feature_mask.weight"));
  EXPECT_THAT(with("layers", "[9]"), HasSubstr("states that the target does not have"));
  EXPECT_THAT(with("target_layers", "0"), HasSubstr("target_layers"));
}

}  // namespace
}  // namespace draftsmith::model
