// The Tandem secondary: a pass over whole sequences with a block mask, the same token by token over caches, the
// identity that a primary that reads itself is itself, and directories.
#include "tests/support/tandem.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
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

const std::vector<int64_t> kLengths{9, 4, 1, 12};

class TandemFamilies : public testing::TestWithParam<TransformerConfig> {
 protected:
  std::unique_ptr<TransformerModel> primary_ = varied_model(GetParam(), 11);
  PairBatch batch_ = pair_batch(GetParam(), kLengths, 5);

  at::Tensor primary_logits() { return primary_->head(primary_->forward(forward_input(batch_)).hidden); }

  std::unique_ptr<DecodeState> begin(TransformerModel& secondary, const PrimaryStates& states) const {
    const int64_t capacity = 16;
    if (!GetParam().encoder_decoder) return secondary.begin(static_cast<int64_t>(kLengths.size()), capacity);
    return secondary.begin(secondary.project_encoder({states.encoder, batch_.source.lengths}), capacity);
  }

  // Tokens begin..end of each row, as far as it has them.
  std::vector<std::vector<int64_t>> tokens_between(int64_t begin, int64_t end) const {
    std::vector<std::vector<int64_t>> rows;
    for (size_t b = 0; b < kLengths.size(); ++b) {
      rows.push_back(slice(batch_.target, b, std::min(begin, kLengths[b]), std::min(end, kLengths[b])));
    }
    return rows;
  }

  // The pass as decoding does it: in each block one token after the other, then the primary's representations of the
  // block's tokens in place of the secondary's own. [B,T,V]
  at::Tensor logits_token_by_token(TransformerModel& secondary, const PrimaryStates& states, int64_t block) const {
    const at::Tensor logits =
        at::zeros({static_cast<int64_t>(kLengths.size()), 12, GetParam().vocabulary}, at::kDouble);
    const auto state = begin(secondary, states);
    for (int64_t first = 0; first < 12; first += block) {
      const int64_t end = std::min<int64_t>(first + block, 12);
      for (int64_t t = first; t < end; ++t) {
        const StepInput input = step_input(tokens_between(t, t + 1));
        logits.select(1, t).copy_(secondary.step(input, *state).logits.select(1, 0));
      }
      replace_block(secondary, states, {first, end}, *state);
    }
    return logits;
  }

  void replace_block(TransformerModel& secondary, const PrimaryStates& states, std::pair<int64_t, int64_t> block,
                     DecodeState& state) const {
    const std::vector<int64_t> before(kLengths.size(), block.first);
    state.rollback(before);
    std::vector<int64_t> counts;
    for (const auto& row : tokens_between(block.first, block.second)) counts.push_back(std::ssize(row));
    std::vector<at::Tensor> representations;
    for (const at::Tensor& layer : states.layers) {
      representations.push_back(layer.narrow(1, block.first, block.second - block.first));
    }
    DecoderState& own = transformer_state(state);
    secondary.write_primary(representations, own.append(counts, block.second - block.first), own);
  }
};

TEST_P(TandemFamilies, PrimaryThatReadsItselfIsItselfForAnyBlock) {
  const auto secondary = secondary_like(*primary_);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  for (const int64_t block : {1, 2, 3, 7, 100}) {
    EXPECT_LT(row_difference(tandem_logits(*secondary, states, batch_, block), primary_logits(), kLengths), 1e-11)
        << block;
    EXPECT_LT(row_difference(logits_token_by_token(*secondary, states, block), primary_logits(), kLengths), 1e-11)
        << block;
  }
}

TEST_P(TandemFamilies, MaskedPassEqualsTokenByTokenDecoding) {
  const auto secondary = small_secondary(*primary_, 21);
  const PrimaryStates states = primary_states(*primary_, *secondary, batch_);
  for (const int64_t block : {1, 2, 3, 5, 20}) {
    const at::Tensor pass = tandem_logits(*secondary, states, batch_, block);
    EXPECT_LT(row_difference(pass, logits_token_by_token(*secondary, states, block), kLengths), 1e-11) << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TandemFamilies, testing::ValuesIn(tiny_models()), family_name);

class TandemDirectory : public testing::Test {
 protected:
  TandemDirectory() { save_model(root_ / "large", *primary_); }

  void save(const std::string& name, TandemSaveOptions options) const {
    save_tandem(root_ / name, *secondary_, options);
  }
  // Referencing root_/large.
  fs::path referencing() const {
    save("referencing", {.primary_directory = root_ / "large"});
    return root_ / "referencing";
  }
  // What loading says when config.json's draftsmith_tandem was changed.
  std::string error_with(const json& changes) const {
    const fs::path directory = referencing();
    patch_config(directory, {{"draftsmith_tandem", changes}});
    const std::string message = error_of([&] { load_tandem(directory); });
    fs::remove_all(directory);
    return message;
  }
  void expect_loads_as_written(const fs::path& directory, const TandemLoadOptions& options = {}) const {
    const auto plain = load_with_companion(tandem_kind(), directory, {}, {.pack = false});
    for (const auto& [name, value] : secondary_->parameters()) {
      EXPECT_EQ(difference(plain->parameters().at(name), value), 0) << name;
    }
    EXPECT_EQ(plain->config().tandem.layer_map, secondary_->config().tandem.layer_map);
    EXPECT_EQ(plain->config().tandem.block, 2);
    const Tandem loaded = load_tandem(directory, options);
    const PrimaryStates states = primary_states(*loaded.primary, *loaded.secondary, batch_);
    const PrimaryStates expected = primary_states(*primary_, *secondary_, batch_);
    EXPECT_LT(row_difference(tandem_logits(*loaded.secondary, states, batch_, 2),
                             tandem_logits(*secondary_, expected, batch_, 2), {7, 3}),
              1e-4);
  }

  TemporaryDirectory root_;
  std::unique_ptr<TransformerModel> primary_ = varied_model(tiny_mt5(), 1, at::kFloat);
  std::unique_ptr<TransformerModel> secondary_ = small_secondary(*primary_, 2, at::kFloat);
  PairBatch batch_ = pair_batch(primary_->config(), {7, 3}, 3);
};

TEST_F(TandemDirectory, IsReadBackWithItsPrimaryInside) {
  save("written", {.primary = primary_.get()});
  expect_loads_as_written(root_ / "written");
  EXPECT_EQ(companion_directory(tandem_kind(), root_ / "written"), root_ / "written" / "primary");
  save("copied", {.primary_directory = root_ / "large", .copy_primary = true});
  expect_loads_as_written(root_ / "copied");
  fs::rename(root_ / "copied", root_ / "moved");  // self-contained: it may lie anywhere
  expect_loads_as_written(root_ / "moved");
  EXPECT_NO_THROW(check_transformer_directory(root_ / "moved"));
}

// Loaded for decoding alone, in types that decode, the secondary goes on from its primary's representations.
TEST_F(TandemDirectory, DecodesAsLoaded) {
  const fs::path directory = referencing();
  const auto logits_after_the_primary = [&](const LoadOptions& primary, const LoadOptions& secondary) {
    const Tandem loaded = load_tandem(directory, {.secondary = secondary, .primary = primary});
    const EncoderStates encoded = loaded.primary->encode(batch_.source);
    const auto reading = loaded.primary->begin(encoded, 8);
    const auto drafting = loaded.secondary->begin(loaded.secondary->project_encoder(encoded), 8);
    StepInput input = step_input({slice(batch_.target, 0, 0, 4), slice(batch_.target, 1, 0, 2)}, Logits::kNone);
    input.hidden_layers = loaded.secondary->config().tandem.layer_map;
    const StepOutput read = loaded.primary->step(input, *reading);
    DecoderState& state = transformer_state(*drafting);
    loaded.secondary->write_primary(read.hidden, state.append(input.new_tokens, 4), state);
    return loaded.secondary->step(step_input({{5}, {6}}), *drafting).logits.to(at::kFloat);  // [2,1,V]
  };
  const LoadOptions exact{.dtype = at::kDouble, .pack = false};
  const at::Tensor expected = logits_after_the_primary(exact, exact);
  EXPECT_LT(difference(logits_after_the_primary({}, {}), expected), 1e-4);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor half = logits_after_the_primary({.dtype = type}, {.dtype = type});
    EXPECT_LT(difference(half, expected), 0.15 * largest(expected)) << type;
  }
}

TEST_F(TandemDirectory, AnotherPrimaryIsRefusedNamingBoth) {
  const fs::path directory = referencing();
  save_model(root_ / "other", *varied_model(tiny_mt5(), 9, at::kFloat));
  const auto with_other = [&](const fs::path& tandem) {
    return error_of([&] { load_tandem(tandem, {.primary_directory = root_ / "other"}); });
  };
  const auto names_both = [&](const std::string& own) {
    return AllOf(HasSubstr("another primary"), HasSubstr(own), HasSubstr((root_ / "other").string()),
                 HasSubstr(model_hash(root_ / "large").substr(0, 16)));
  };
  EXPECT_THAT(with_other(directory), names_both((root_ / "large").string()));
  save("inside", {.primary = primary_.get()});
  EXPECT_THAT(with_other(root_ / "inside"), names_both((root_ / "inside" / "primary").string()));
}

TEST_F(TandemDirectory, ChangedOrMissingPrimaryIsNoticed) {
  const fs::path directory = referencing();
  fs::remove_all(root_ / "large");
  EXPECT_THAT(error_of([&] { load_tandem(directory); }),
              AllOf(HasSubstr("not there"), HasSubstr((root_ / "large").string())));
  save_model(root_ / "large", *varied_model(tiny_mt5(), 9, at::kFloat));
  EXPECT_THAT(error_of([&] { load_tandem(directory); }), HasSubstr("another primary"));
  EXPECT_THAT(error_of([&] { check_transformer_directory(directory); }), HasSubstr("has changed"));
}

TEST_F(TandemDirectory, APrimaryOfAnotherPaddingIsRead) {
  TransformerConfig padded = tiny_mt5();
  padded.vocabulary += 6;
  const auto primary = varied_model(padded, 9, at::kFloat);
  save_model(root_ / "padded", *primary);
  const auto secondary = make_tandem_secondary(*varied_model(smaller(tiny_mt5()), 4, at::kFloat), *primary);
  save_tandem(root_ / "pair", *secondary, {.primary_directory = root_ / "padded"});
  check_transformer_directory(root_ / "pair");
  EXPECT_EQ(load_with_companion(tandem_kind(), root_ / "pair", root_ / "padded")->config().vocabulary,
            tiny_mt5().vocabulary);
}

TEST_F(TandemDirectory, IsTakenForNoOtherModel) {
  const fs::path directory = referencing();
  const json config = load_json(directory / "config.json");
  EXPECT_EQ(config.at("architectures"), json({"DraftsmithTandemMT5ForConditionalGeneration"}));
  EXPECT_EQ(config.at("model_type"), "draftsmith_tandem");
  EXPECT_THAT(error_of([&] { load_model(directory); }), AllOf(HasSubstr("Tandem secondary"), HasSubstr("--drafter")));
  EXPECT_THAT(error_of([&] { load_with_companion(tandem_kind(), root_ / "large", {}); }),
              AllOf(HasSubstr("an ordinary model"), HasSubstr("a Tandem secondary")));
  EXPECT_TRUE(kind_of_directory(directory) == tandem_kind());
  EXPECT_FALSE(kind_of_directory(root_ / "large") == tandem_kind());
  EXPECT_FALSE(kind_of_directory(root_ / "nothing") == tandem_kind());
}

TEST_F(TandemDirectory, SecondaryWithoutARecordedPrimaryIsLoadedWithAnyThatFits) {
  save_model(root_ / "checkpoint", *secondary_);
  EXPECT_THAT(error_of([&] { companion_directory(tandem_kind(), root_ / "checkpoint"); }),
              HasSubstr("names no primary"));
  EXPECT_NO_THROW(load_with_companion(tandem_kind(), root_ / "checkpoint", root_ / "large"));
}

// `..` in a recorded path leads out of the directory itself, not out of where a link to it lies.
TEST_F(TandemDirectory, FindsItsPrimaryThroughALink) {
  save("work/stage/model", {.primary_directory = root_ / "large"});
  fs::create_directory_symlink(root_ / "work/stage/model", root_ / "link");
  EXPECT_TRUE(fs::equivalent(companion_directory(tandem_kind(), root_ / "link"), root_ / "large"));
  EXPECT_EQ(error_of([&] { check_transformer_directory(root_ / "link"); }), "no error");
  expect_loads_as_written(root_ / "link");
}

// A checkpoint: to name its primary by its hash would be to read it back each time.
TEST_F(TandemDirectory, IsTheSameModelWhereverItsPrimaryLies) {
  const std::string hash = model_hash(referencing());
  save("inside", {.primary_directory = root_ / "large", .copy_primary = true});
  save("deep/er", {.primary_directory = root_ / "large"});
  EXPECT_EQ(model_hash(root_ / "inside"), hash);
  EXPECT_EQ(model_hash(root_ / "deep/er"), hash);
  save_model(root_ / "another", *varied_model(tiny_mt5(), 7, at::kFloat));
  save("of another", {.primary_directory = root_ / "another"});
  EXPECT_NE(model_hash(root_ / "of another"), hash);
}

TEST_F(TandemDirectory, MalformedOnesAreRefusedByName) {
  EXPECT_THAT(error_with({{"layer_map", {1, 4}}}),
              AllOf(HasSubstr("layer_map"), HasSubstr("0 (embedding output) to 3"), HasSubstr("found:    4")));
  EXPECT_THAT(error_with({{"layer_map", {1, 2, 3}}}), AllOf(HasSubstr("2 numbers"), HasSubstr("1, 2, 3")));
  EXPECT_THAT(error_with({{"block", 0}}), AllOf(HasSubstr("block"), HasSubstr("0")));
  EXPECT_THAT(error_with({{"primary_width", "wide"}}), HasSubstr("primary_width"));
  EXPECT_THAT(error_with({{"primary_width", 12}}), AllOf(HasSubstr("primary_projection"), HasSubstr("[16, 12]")));
  EXPECT_THAT(error_with({{"primary", {{"path", "x"}, {"sha256", "abc"}}}}), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(error_with({{"primary", 3}}), HasSubstr("primary"));
  const std::string huge = error_with({{"layer_map", std::vector<int64_t>(200'000, 9)}});
  EXPECT_THAT(huge, HasSubstr("200000: 9, 9"));
  EXPECT_LT(huge.size(), 1000u);
}

TEST(TandemConfig, DefaultLayerMapIsEven) {
  EXPECT_EQ(default_layer_map(2, 6), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(default_layer_map(3, 4), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(default_layer_map(1, 6), (std::vector<int64_t>{6}));
  EXPECT_EQ(default_layer_map(4, 2), (std::vector<int64_t>{0, 1, 1, 2}));
}

TEST(TandemConfig, PairsThatDoNotFitAreRefusedWithBothNames) {
  TransformerConfig other = smaller(tiny_llama(3));
  other.eos = {4};
  const auto message = [&](const TransformerConfig& secondary, const TandemStart& start) {
    return error_of([&] { tandem_config(secondary, tiny_llama(3), start, {"small/", "large/"}); });
  };
  EXPECT_THAT(message(other, {}), AllOf(HasSubstr("small/"), HasSubstr("large/"), HasSubstr("end a text")));
  TransformerConfig of_several = tiny_llama(3);
  of_several.eos = {4, 1};
  other.eos = {1, 4};
  EXPECT_NO_THROW(tandem_config(other, of_several, {}, {"small/", "large/"})) << "in another order";
  EXPECT_THAT(message(smaller(tiny_t5()), {}), HasSubstr("encoder-decoder"));
  const TransformerConfig fitting = smaller(tiny_llama(3));
  TransformerConfig other_start = fitting;
  other_start.decoder_start = fitting.decoder_start + 1;
  EXPECT_THAT(message(other_start, {}), HasSubstr("the start id"));
  EXPECT_THAT(message(fitting, {{1, 5}, 0, ProjectionStart::kRandom, 1}),
              AllOf(HasSubstr("found:    5"), HasSubstr("at least one token")));
  EXPECT_EQ(message(fitting, {}), "no error");
}

TEST(TandemConfig, UnitProjectionsCutOrPad) {
  const auto primary = varied_model(tiny_llama(3), 1, at::kFloat);  // width 12
  const auto wider = varied_model(smaller(tiny_llama(3)), 2, at::kFloat);
  const auto secondary = make_tandem_secondary(*wider, *primary, {{}, 2, ProjectionStart::kIdentity, 1});
  const at::Tensor& projection = secondary->parameters().at("decoder.1.primary_projection.weight");
  EXPECT_EQ(difference(projection, at::eye(16, 12)), 0);
  // A random start keeps the size of what it projects.
  const auto random = make_tandem_secondary(*wider, *primary, {});
  EXPECT_NEAR(random->parameters().at("decoder.0.primary_projection.weight").std().item<double>(), std::pow(12, -0.5),
              0.06);
}

}  // namespace
}  // namespace draftsmith::model
