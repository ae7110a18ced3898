// Exits inside and outside model directories: inspect, verify, export, prune.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "recipes/export/export_model.h"
#include "recipes/inspection.h"
#include "recipes/pruning.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ExitsOfDirectories : public testing::Test {
 protected:
  ExitsOfDirectories() {
    save("llama", model::tiny_llama(3));
    save("t5", model::exits_t5());
  }

  void save(const std::string& name, const model::TransformerConfig& config) const {
    const model::TransformerModel model(config, 5);
    model::save_model(folder_ / name, model);
    model::Exits exits(model::forms_for(config), model, 5);
    model::disturb(exits);
    exits.bind(name, model::model_hash(folder_ / name));
    model::save_exits(model::exits_directory(folder_ / name), exits);
  }

  ExportSummary run(const std::string& name, const std::string& out, ExportOptions options = {}) const {
    options.model = folder_ / name;
    options.out = folder_ / out;
    return export_model(options);
  }

  fs::path weights(const std::string& name) const {
    return model::exits_directory(folder_ / name) / "exits.safetensors";
  }

  const TemporaryDirectory folder_;
};

TEST_F(ExitsOfDirectories, AreShownAndVerifiedWithTheirModel) {
  EXPECT_THAT(inspect(folder_ / "t5"), AllOf(HasSubstr("model of family t5"), HasSubstr("exits of 3 layers"),
                                             HasSubstr("a low-rank head of rank 2"), HasSubstr("a full head: 460")));
  EXPECT_THAT(verify(folder_ / "t5"), IsEmpty());
  std::string bytes = read_file(weights("t5"));
  write_file_atomic(weights("t5"), bytes.substr(0, bytes.size() - 4));
  EXPECT_THAT(text_of(verify(folder_ / "t5")), HasSubstr("exits.safetensors"));
  EXPECT_NE(error_of([&] { inspect(folder_ / "t5"); }), "no error");
  fs::remove_all(model::exits_directory(folder_ / "t5"));
  fs::copy(model::exits_directory(folder_ / "llama"), model::exits_directory(folder_ / "t5"));
  EXPECT_THAT(text_of(verify(folder_ / "t5")), HasSubstr("belong to another model"));
}

TEST_F(ExitsOfDirectories, AreShownAndVerifiedAlone) {
  const fs::path inside = model::exits_directory(folder_ / "t5");
  fs::copy(inside, folder_ / "alone");
  for (const fs::path& exits : {inside, folder_ / "alone"}) {
    EXPECT_THAT(inspect(exits), AllOf(HasSubstr("exits of 3 layers, trained as heads"), HasSubstr("t5 (3 layers")));
    EXPECT_THAT(verify(exits), IsEmpty());
    EXPECT_FALSE(is_recorded(exits));
  }
  const model::TransformerModel other(model::exits_t5(), 6);
  fs::remove(folder_ / "t5/model.safetensors");
  model::save_model(folder_ / "other", other);
  fs::copy(folder_ / "other/model.safetensors", folder_ / "t5");
  EXPECT_THAT(text_of(verify(inside)), HasSubstr("belong to another model")) << "the model that they lie in";
  EXPECT_THAT(verify(folder_ / "alone"), IsEmpty()) << "no model to compare with";
}

TEST_F(ExitsOfDirectories, GoAlongInAnExport) {
  for (const std::string name : {"llama", "t5"}) {
    const ExportSummary done = run(name, name + "_out");
    const auto model = model::load_model(folder_ / (name + "_out"), {.pack = false});
    const fs::path place = model::exits_directory(folder_ / (name + "_out"));
    const auto before = model::load_exits(model::exits_directory(folder_ / name), folder_ / name, *model);
    const auto after = model::load_exits(place, folder_ / (name + "_out"), *model);
    for (const auto& [parameter, value] : before->parameters()) {
      EXPECT_TRUE(at::equal(value, after->parameters().at(parameter))) << parameter;
    }
    EXPECT_EQ(done.parameters, model->parameters().size() + after->parameters().size());
    EXPECT_EQ(after->config().trained_as, "heads");
    EXPECT_EQ(after->config().exits.size(), 3);
    EXPECT_THAT(verify(folder_ / (name + "_out")), IsEmpty());
    EXPECT_THAT(read_file(folder_ / (name + "_out") / "README.md"), HasSubstr("without exits"));
  }
  run("llama", "vllm_out", {.format = "vllm"});
  EXPECT_TRUE(model::holds_exits(model::exits_directory(folder_ / "vllm_out")));
}

TEST_F(ExitsOfDirectories, AreBoundToTheModelAsItWasExported) {
  run("t5", "narrow/", {.dtype = "bf16"});
  const auto model = model::load_model(folder_ / "narrow", {.pack = false});
  EXPECT_NE(model::model_hash(folder_ / "narrow"), model::model_hash(folder_ / "t5"));
  const fs::path exits = model::exits_directory(folder_ / "narrow");
  EXPECT_EQ(model::load_exit_config(exits).model_hash, model::model_hash(folder_ / "narrow"));
  EXPECT_EQ(model::load_exit_config(exits).model, "narrow");
  const auto before = model::load_exits(model::exits_directory(folder_ / "t5"), folder_ / "t5", *model);
  const auto after = model::load_exits(exits, folder_ / "narrow", *model);
  for (const auto& [name, value] : before->parameters()) {
    EXPECT_TRUE(at::equal(value.to(at::kBFloat16).to(at::kFloat), after->parameters().at(name))) << name;
  }
}

TEST_F(ExitsOfDirectories, OfAnotherModelAreNotExported) {
  fs::remove_all(model::exits_directory(folder_ / "t5"));
  fs::copy(model::exits_directory(folder_ / "llama"), model::exits_directory(folder_ / "t5"));
  EXPECT_THAT(error_of([&] { run("t5", "refused"); }), HasSubstr("belong to another model"));
  EXPECT_FALSE(fs::exists(folder_ / "refused"));
}

TEST_F(ExitsOfDirectories, WithValuesThatTheTypeCannotHoldAreNotExported) {
  const auto model = model::load_model(folder_ / "t5", {.pack = false});
  const auto exits = model::load_exits(model::exits_directory(folder_ / "t5"), folder_ / "t5", *model);
  exits->parameters().at("exit.2.head.weight").mul_(1e9);
  fs::remove_all(model::exits_directory(folder_ / "t5"));
  model::save_exits(model::exits_directory(folder_ / "t5"), *exits);
  EXPECT_THAT(error_of([&] { run("t5", "refused", {.dtype = "fp16"}); }),
              AllOf(HasSubstr("cannot be held in fp16"), HasSubstr("exit.2.head.weight overflow")));
  EXPECT_FALSE(fs::exists(folder_ / "refused"));
}

TEST_F(ExitsOfDirectories, StayBehindWhenTheirModelIsPruned) {
  model::PruneOptions options;
  options.decoder_layers = "first:2";
  prune_directory(folder_ / "llama", folder_ / "cut", options, at::kCPU);
  EXPECT_FALSE(fs::exists(model::exits_directory(folder_ / "cut")));
  EXPECT_THAT(inspect(folder_ / "cut"), Not(HasSubstr("exits")));
}

}  // namespace
}  // namespace draftsmith::recipes
