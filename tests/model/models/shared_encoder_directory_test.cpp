// Directories of drafters that share their target's encoder: written, read back, taken for nothing else, refused with
// another target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/model_hash.h"
#include "model/kinds/shared_encoder.h"
#include "model/kinds/tandem.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class SharedEncoderDirectory : public testing::Test {
 protected:
  SharedEncoderDirectory() { save_model(root_ / "large", *target_); }

  fs::path saved(const std::string& name = "drafter") const {
    save_shared_encoder(root_ / name, *drafter_, root_ / "large");
    return root_ / name;
  }
  // Returns the error of loading the drafter with a changed config.json.
  template <class Change>
  std::string error_with(const Change& change) const {
    const fs::path directory = saved();
    json config = load_json(directory / "config.json");
    change(config);
    write_json(directory / "config.json", nlohmann::ordered_json(config));
    const std::string message = error_of([&] { load_shared_encoder(directory, root_ / "large"); });
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
  const auto loaded = load_shared_encoder(directory, root_ / "large", {.pack = false});
  EXPECT_EQ(loaded->parameters().size(), drafter_->parameters().size());
  for (const auto& [name, value] : drafter_->parameters()) {
    EXPECT_EQ(difference(loaded->parameters().at(name), value), 0) << name;
  }
  EXPECT_EQ(loaded->config().shared_encoder_width, target_->config().width);
  EXPECT_EQ(loaded->config().encoder_layers, 0);
  EXPECT_TRUE(fs::equivalent(shared_encoder_target(directory), root_ / "large"));
  EXPECT_NO_THROW(check_shared_encoder_directory(directory));
  EXPECT_TRUE(is_shared_encoder_directory(directory));
  EXPECT_FALSE(is_shared_encoder_directory(root_ / "large"));
  EXPECT_FALSE(is_shared_encoder_directory(root_ / "nothing"));
}

TEST_F(SharedEncoderDirectory, IsTakenForNoOtherModel) {
  const fs::path directory = saved();
  const json config = load_json(directory / "config.json");
  EXPECT_EQ(config.at("architectures"), json({"DraftsmithSharedEncoderMT5ForConditionalGeneration"}));
  EXPECT_EQ(config.at("model_type"), "draftsmith_shared_encoder");
  EXPECT_EQ(config.at("draftsmith_shared_encoder").at("width"), target_->config().width);
  EXPECT_THAT(error_of([&] { load_model(directory); }),
              AllOf(HasSubstr("no encoder of its own"), HasSubstr("--drafter")));
  EXPECT_THAT(error_of([&] { load_tandem_secondary(directory, {}); }), HasSubstr("shares its target's encoder"));
  EXPECT_THAT(error_of([&] { load_shared_encoder(root_ / "large", {}); }), HasSubstr("an ordinary model"));
  EXPECT_EQ(describe_model(directory).kind, shared_encoder_kind());
}

TEST_F(SharedEncoderDirectory, AnotherTargetIsRefusedNamingBoth) {
  const fs::path directory = saved();
  save_model(root_ / "other", *varied_model(tiny_mt5(), 9, at::kFloat));
  EXPECT_THAT(error_of([&] { load_shared_encoder(directory, root_ / "other"); }),
              AllOf(HasSubstr("belongs to another target"), HasSubstr((root_ / "other").string()),
                    HasSubstr((root_ / "large").string())));
  TransformerConfig wide = tiny_mt5();
  wide.width = 24;
  save_model(root_ / "wide", *varied_model(wide, 9, at::kFloat));
  EXPECT_THAT(error_of([&] { load_shared_encoder(directory, root_ / "wide"); }),
              AllOf(HasSubstr("the width of its encoder states"), HasSubstr("24"), HasSubstr("20")));
  EXPECT_THAT(error_of([&] { load_shared_encoder(directory, root_ / "nowhere"); }), HasSubstr("is not there"));
}

TEST_F(SharedEncoderDirectory, TheSameTargetElsewhereIsFine) {
  const fs::path directory = saved();
  const std::string hash = model_hash(directory);
  fs::create_directories(root_ / "deep/er");
  fs::rename(root_ / "large", root_ / "deep/er/large");
  EXPECT_NO_THROW(load_shared_encoder(directory, root_ / "deep/er/large"));
  EXPECT_THAT(error_of([&] { check_shared_encoder_directory(directory); }), HasSubstr("is not there"));
  save_shared_encoder(root_ / "again", *drafter_, root_ / "deep/er/large");
  EXPECT_EQ(model_hash(root_ / "again"), hash) << "the target's path is no part of the model";
}

TEST_F(SharedEncoderDirectory, ATargetThatChangedIsFound) {
  const fs::path directory = saved();
  fs::remove_all(root_ / "large");
  save_model(root_ / "large", *varied_model(tiny_mt5(), 9, at::kFloat));
  EXPECT_THAT(error_of([&] { check_shared_encoder_directory(directory); }), HasSubstr("its target has changed"));
}

TEST_F(SharedEncoderDirectory, ACheckpointNamesNoTarget) {
  save_model(root_ / "checkpoint", *drafter_);
  EXPECT_FALSE(recorded_target(root_ / "checkpoint").has_value());
  EXPECT_NO_THROW(check_shared_encoder_directory(root_ / "checkpoint"));
  EXPECT_NO_THROW(load_shared_encoder(root_ / "checkpoint", root_ / "large"));
  EXPECT_THAT(error_of([&] { shared_encoder_target(root_ / "checkpoint"); }), HasSubstr("names no target"));
}

TEST_F(SharedEncoderDirectory, MalformedOnesAreRefusedByName) {
  EXPECT_THAT(error_with([](json& config) { config.erase("draftsmith_shared_encoder"); }),
              HasSubstr("draftsmith_shared_encoder"));
  EXPECT_THAT(error_with([](json& config) { config["draftsmith_shared_encoder"]["width"] = 0; }), HasSubstr("width"));
  EXPECT_THAT(error_with([](json& config) { config["draftsmith_shared_encoder"]["width"] = 12; }),
              AllOf(HasSubstr("encoder_projection.weight"), HasSubstr("[16, 12]")));
  EXPECT_THAT(error_with([](json& config) { config["num_layers"] = 1; }), HasSubstr("num_layers"));
  EXPECT_THAT(error_with([](json& config) { config["draftsmith_shared_encoder"]["target"] = 3; }), HasSubstr("target"));
  EXPECT_THAT(error_with([](json& config) { config["draftsmith_shared_encoder"]["target"]["sha256"] = "abc"; }),
              HasSubstr("64 hexadecimal digits"));
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
