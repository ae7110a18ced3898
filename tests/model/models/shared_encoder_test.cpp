// The drafter that shares its target's encoder: a pass over whole sequences, the same token by token over caches, an
// ordinary decoder over the projected states, and directories.
#include "model/models/shared_encoder.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/tandem.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::vector<int64_t> kTargetLengths{9, 4, 1, 12};

class SharedEncoder : public testing::TestWithParam<TransformerConfig> {
 protected:
  std::unique_ptr<TransformerModel> target_ = varied_model(GetParam(), 11);
  std::unique_ptr<TransformerModel> small_ = varied_model(smaller(GetParam()), 12);
  std::unique_ptr<TransformerModel> drafter_ = make_shared_encoder_drafter(*small_, *target_);
  PairBatch batch_ = pair_batch(GetParam(), kTargetLengths, 5);

  EncoderStates encoded() { return target_->encode(batch_.source); }

  // [B,T,V]
  at::Tensor pass_logits(TransformerModel& drafter) {
    const at::NoGradGuard no_grad;
    ForwardInput input = forward_input(batch_);
    input.shared_encoder = encoded().hidden;
    return drafter.head(drafter.forward(input).hidden);
  }
};

// Steps of one token a row over the cross-attention of `states`. [B,T,V]
at::Tensor stepwise_logits(LanguageModel& model, const EncoderStates& states, const PairBatch& batch) {
  const at::Tensor logits = at::zeros({4, 12, model.info().vocabulary}, at::kDouble);
  const auto state = model.begin(states, 16);
  for (int64_t t = 0; t < 12; ++t) {
    std::vector<std::vector<int64_t>> rows;
    for (size_t b = 0; b < 4; ++b) {
      rows.push_back(slice(batch.target, b, std::min(t, kTargetLengths[b]), std::min(t + 1, kTargetLengths[b])));
    }
    logits.select(1, t).copy_(model.step(step_input(rows), *state).logits.select(1, 0));
  }
  return logits;
}

// The reference composition: a projection by hand, and the ordinary model whose decoder the drafter has.
TEST_P(SharedEncoder, IsAnOrdinaryDecoderOverProjectedStates) {
  const EncoderStates states = encoded();
  const at::Tensor projection = drafter_->parameters().at("encoder_projection.weight");
  EXPECT_EQ(projection.sizes(), (std::vector<int64_t>{small_->config().width, target_->config().width}));
  const EncoderStates projected{states.hidden.matmul(projection.t()), states.lengths};
  EXPECT_LT(difference(drafter_->project_encoder(states).hidden, projected.hidden), 1e-12);
  const at::Tensor expected = stepwise_logits(*small_, projected, batch_);
  EXPECT_LT(row_difference(pass_logits(*drafter_), expected, kTargetLengths), 1e-11);
}

TEST_P(SharedEncoder, WritesAloneWithItsTargetsEncoder) {
  SharedEncoderPair alone(*drafter_, *target_);
  const EncoderStates states = alone.encode(batch_.source);
  EXPECT_LT(difference(states.hidden, drafter_->project_encoder(encoded()).hidden), 1e-12);
  EXPECT_EQ(states.lengths, batch_.source.lengths);
  const at::Tensor logits = stepwise_logits(alone, states, batch_);
  EXPECT_LT(row_difference(pass_logits(*drafter_), logits, kTargetLengths), 1e-11);
}

INSTANTIATE_TEST_SUITE_P(EncoderDecoders, SharedEncoder, testing::Values(tiny_t5(), tiny_mt5()), family_name);

// Loaded for decoding, steps are the packed programs of the CPU, and the projection is packed as other layers are.
TEST(SharedEncoderWeights, OfEveryTypeDecodeCloseToThePlainOnes) {
  TemporaryDirectory root;
  const TransformerConfig config = t5_config({.vocabulary = 40, .width = 64, .head_width = 32, .ff_width = 96});
  const auto target = varied_model(config, 1, at::kFloat);
  TransformerConfig narrow = config;
  narrow.width = 32;
  const auto drafter = make_shared_encoder_drafter(*varied_model(narrow, 2, at::kFloat), *target);
  save_model(root / "target", *target);
  save_with_companion(root / "drafter", *drafter, root / "target");
  const PairBatch batch = pair_batch(config, kTargetLengths, 5);
  const EncoderStates states = target->encode(batch.source);
  const at::Tensor expected = stepwise_logits(*drafter, drafter->project_encoder(states), batch);
  const double size = expected.abs().max().item<double>();
  for (const auto& [type, bound] : {std::pair(at::kFloat, 1e-5), {at::kBFloat16, 0.03}, {at::kChar, 0.05}}) {
    const auto loaded = load_with_companion(shared_encoder_kind(), root / "drafter", root / "target", {.dtype = type});
    const EncoderStates projected = loaded->project_encoder(states);
    const at::Tensor plain = drafter->project_encoder(states).hidden;
    EXPECT_LT(difference(projected.hidden, plain) / plain.abs().max().item<double>(), bound) << type;
    const at::Tensor logits = stepwise_logits(*loaded, projected, batch);
    EXPECT_LT(row_difference(logits, expected, kTargetLengths) / size, bound) << type;
  }
}

class SharedEncoderDirectory : public testing::Test {
 protected:
  SharedEncoderDirectory() { save_model(root_ / "large", *target_); }

  fs::path saved(const std::string& name = "drafter") const {
    save_with_companion(root_ / name, *drafter_, root_ / "large");
    return root_ / name;
  }
  // Returns the error of loading the drafter with a patched config.json.
  std::string error_with(const json& patch) const {
    const fs::path directory = saved();
    patch_config(directory, patch);
    const std::string message =
        error_of([&] { load_with_companion(shared_encoder_kind(), directory, root_ / "large"); });
    fs::remove_all(directory);
    return message;
  }

  TemporaryDirectory root_;
  std::unique_ptr<TransformerModel> target_ = varied_model(tiny_mt5(), 1, at::kFloat);
  std::unique_ptr<TransformerModel> drafter_ =
      make_shared_encoder_drafter(*varied_model(smaller(tiny_mt5()), 2, at::kFloat), *target_);
};

TEST_F(SharedEncoderDirectory, IsReadBackAsWritten) {
  const fs::path directory = saved();
  const auto loaded = load_with_companion(shared_encoder_kind(), directory, root_ / "large", {.pack = false});
  EXPECT_EQ(loaded->parameters().size(), drafter_->parameters().size());
  for (const auto& [name, value] : drafter_->parameters()) {
    EXPECT_EQ(difference(loaded->parameters().at(name), value), 0) << name;
  }
  EXPECT_EQ(loaded->config().shared_encoder_width, target_->config().width);
  EXPECT_EQ(loaded->config().encoder_layers, 0);
  EXPECT_TRUE(fs::equivalent(companion_directory(shared_encoder_kind(), directory), root_ / "large"));
  EXPECT_NO_THROW(check_transformer_directory(directory));
  EXPECT_TRUE(kind_of_directory(directory) == shared_encoder_kind());
  EXPECT_FALSE(kind_of_directory(root_ / "large") == shared_encoder_kind());
  EXPECT_FALSE(kind_of_directory(root_ / "nothing") == shared_encoder_kind());
}

TEST_F(SharedEncoderDirectory, IsTakenForNoOtherModel) {
  const fs::path directory = saved();
  const json config = load_json(directory / "config.json");
  EXPECT_EQ(config.at("architectures"), json({"DraftsmithSharedEncoderMT5ForConditionalGeneration"}));
  EXPECT_EQ(config.at("model_type"), "draftsmith_shared_encoder");
  EXPECT_EQ(config.at("draftsmith_shared_encoder").at("width"), target_->config().width);
  EXPECT_THAT(error_of([&] { load_model(directory); }),
              AllOf(HasSubstr("no encoder of its own"), HasSubstr("--drafter")));
  EXPECT_THAT(error_of([&] { load_with_companion(tandem_kind(), directory, {}); }),
              HasSubstr("shares its target's encoder"));
  EXPECT_THAT(error_of([&] { load_with_companion(shared_encoder_kind(), root_ / "large", {}); }),
              HasSubstr("an ordinary model"));
}

TEST_F(SharedEncoderDirectory, MalformedOnesAreRefusedByName) {
  const auto error_with_own = [&](const json& patch) { return error_with({{"draftsmith_shared_encoder", patch}}); };
  EXPECT_THAT(error_with_own(nullptr), HasSubstr("draftsmith_shared_encoder"));
  EXPECT_THAT(error_with_own({{"width", 0}}), HasSubstr("width"));
  EXPECT_THAT(error_with_own({{"width", 12}}), AllOf(HasSubstr("encoder_projection.weight"), HasSubstr("[16, 12]")));
  EXPECT_THAT(error_with_own({{"target", 3}}), HasSubstr("target"));
  EXPECT_THAT(error_with_own({{"target", {{"sha256", "abc"}}}}), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(error_with({{"num_layers", 1}}), HasSubstr("num_layers"));
}

TEST(SharedEncoderPairs, ThatDoNotFitAreRefusedWithBothNames) {
  const auto message = [](const TransformerConfig& drafter, const TransformerConfig& target) {
    return error_of([&] { require_shared_encoder_pair(drafter, target, {"small/", "large/"}); });
  };
  EXPECT_THAT(message(smaller(tiny_llama(3)), tiny_llama(3)), AllOf(HasSubstr("large/"), HasSubstr("no encoder")));
  EXPECT_THAT(message(smaller(tiny_llama(3)), tiny_t5()), AllOf(HasSubstr("small/"), HasSubstr("the kind of model")));
  TransformerConfig other = smaller(tiny_t5());
  other.eos = {4};
  EXPECT_THAT(message(other, tiny_t5()), HasSubstr("end a text"));
  other = smaller(tiny_t5());
  other.decoder_start = 2;
  EXPECT_THAT(message(other, tiny_t5()), HasSubstr("the start id"));
  EXPECT_EQ(message(smaller(tiny_t5()), tiny_t5()), "no error");
}

}  // namespace
}  // namespace draftsmith::model
