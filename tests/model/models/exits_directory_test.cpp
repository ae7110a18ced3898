// Directories of exits: what they hold, whose they are, and what is wrong with damaged ones.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/exits.h"
#include "model/pruning/pruning.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

class ExitDirectories : public ::testing::Test {
 protected:
  // A model with exits of every form inside it.
  fs::path save(const std::string& name, const TransformerConfig& config, uint64_t seed = 7) const {
    const auto model = tiny_model(config, at::kFloat, seed);
    save_model(root_ / name, *model);
    Exits exits(forms_for(config), *model, 5);
    disturb(exits);
    exits.bind("work/target/model", model_hash(root_ / name));
    save_exits(exits_directory(root_ / name), exits);
    return root_ / name;
  }

  static std::string load_error(const fs::path& exits, const fs::path& model, bool check_hash = true) {
    const auto loaded = load_model(model);
    return error_of([&] { load_exits(exits, model, *loaded, check_hash); });
  }

  // The error of loading the exits of MODEL with one value of exits.json changed.
  static std::string after_change(const fs::path& model, const std::string& pointer, const nlohmann::json& value) {
    const fs::path file = exits_directory(model) / "exits.json";
    const std::string original = read_file(file);
    nlohmann::json root = nlohmann::json::parse(original);
    root[nlohmann::json::json_pointer(pointer)] = value;
    write_file_atomic(file, root.dump());
    const std::string message = load_error(exits_directory(model), model);
    EXPECT_EQ(error_of([&] { check_exit_directory(exits_directory(model), model); }), message);
    write_file_atomic(file, original);
    return message;
  }

  // The same with the tensors changed.
  static std::string after_change(const fs::path& model, const std::function<void(std::vector<TensorToStore>&)>& how) {
    const fs::path file = exits_directory(model) / "exits.safetensors";
    const std::string original = read_file(file);
    std::vector<TensorToStore> tensors;
    {
      const SafetensorsFile opened(file);
      for (const auto& entry : opened.tensors()) {
        tensors.push_back({entry.first, opened.read(entry.first, at::kFloat), at::kFloat});
      }
    }
    how(tensors);
    write_safetensors(file, std::move(tensors));
    std::string message = load_error(exits_directory(model), model);
    write_file_atomic(file, original);
    return message;
  }

  static void expect_said(const std::string& message, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  }

  const TemporaryDirectory root_;
};

TEST_F(ExitDirectories, HoldEveryForm) {
  for (const TransformerConfig& config : {exits_t5(), tiny_bloom(), exits_pruned_llama()}) {
    const fs::path directory = save(config.family, config);
    const auto plain = load_model(directory, {.pack = false});
    const auto packed = load_model(directory);
    Exits written(forms_for(config), *plain, 5);
    disturb(written);
    const auto loaded = load_exits(exits_directory(directory), directory, *plain);
    const auto decoding = load_exits(exits_directory(directory), directory, *packed);
    EXPECT_EQ(loaded->config().trained_as, "heads");
    EXPECT_EQ(loaded->config().model, "work/target/model");
    EXPECT_EQ(loaded->config().model_hash, model_hash(directory));
    ASSERT_EQ(loaded->config().exits.size(), 3);
    for (const auto& [name, value] : written.parameters()) {
      EXPECT_TRUE(at::equal(loaded->parameters().at(name), value)) << name;
    }
    const at::Tensor hidden = random_hidden(config, at::kFloat);
    const at::NoGradGuard no_gradients;
    for (int64_t layer = 1; layer <= 3; ++layer) {
      EXPECT_EQ(loaded->find(layer)->head, written.find(layer)->head);
      EXPECT_EQ(loaded->find(layer)->rank, written.find(layer)->rank);
      EXPECT_EQ(loaded->find(layer)->own_norm, written.find(layer)->own_norm);
      const at::Tensor wanted = written.logits(*plain, layer, hidden);
      EXPECT_TRUE(at::equal(loaded->logits(*plain, layer, hidden), wanted));
      EXPECT_TRUE(at::allclose(decoding->logits(*packed, layer, hidden), wanted, 1e-4, 1e-5)) << layer;
    }
  }
}

TEST_F(ExitDirectories, AreOfTheModelsType) {
  const fs::path directory = save("model", exits_t5());
  const auto model = load_model(directory, {.dtype = at::kBFloat16, .pack = false});
  const auto exits = load_exits(exits_directory(directory), directory, *model);
  for (const auto& entry : exits->parameters()) EXPECT_EQ(entry.second.scalar_type(), at::kBFloat16);
  const at::NoGradGuard no_gradients;
  const at::Tensor logits = exits->logits(*model, 1, random_hidden(model->config(), at::kBFloat16));
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
}

TEST_F(ExitDirectories, MayBeRemovedWhileTheirExitsLive) {
  const fs::path directory = save("model", exits_t5());
  const auto model = load_model(directory);
  const auto exits = load_exits(exits_directory(directory), directory, *model);
  const at::Tensor hidden = random_hidden(model->config(), at::kFloat);
  const at::NoGradGuard no_gradients;
  const at::Tensor before = exits->logits(*model, 1, hidden);
  fs::remove_all(exits_directory(directory));
  EXPECT_TRUE(at::equal(exits->logits(*model, 1, hidden), before));
  EXPECT_GT(exits->parameters().at("exit.1.head.up").abs().sum().item<float>(), 0);
}

TEST_F(ExitDirectories, OfSharedHeadsNeedNoWeights) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  save_model(root_ / "model", *model);
  Exits exits({.exits = {{.layer = 1}, {.layer = 3}}, .trained_as = "calm_weighted"}, *model, 5);
  exits.bind("model", model_hash(root_ / "model"));
  save_exits(root_ / "exits", exits);
  EXPECT_FALSE(fs::exists(root_ / "exits/exits.safetensors"));
  EXPECT_EQ(load_exit_config(root_ / "exits").trained_as, "calm_weighted");
  EXPECT_EQ(load_error(root_ / "exits", root_ / "model"), "no error");
  EXPECT_EQ(error_of([&] { check_exit_directory(root_ / "exits", root_ / "model"); }), "no error");
  expect_said(error_of([&] { save_exits(root_ / "exits", exits); }), {"exists already"});
}

TEST_F(ExitDirectories, DoNotChangeTheirModel) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  save_model(root_ / "model", *model);
  const std::string before = model_hash(root_ / "model");
  save_exits(exits_directory(root_ / "model"), Exits(forms_for(model->config()), *model, 5));
  EXPECT_EQ(model_hash(root_ / "model"), before);
  EXPECT_EQ(error_of([&] { ModelDirectory{root_ / "model"}; }), "no error");
}

TEST_F(ExitDirectories, OfAnotherModelAreRefusedNamingBoth) {
  const fs::path own = save("own", exits_t5());
  const fs::path other = save("other", exits_t5(), 8);
  const std::string message = load_error(exits_directory(own), other);
  expect_said(message, {"belong to another model", "work/target/model", model_hash(own).substr(0, 16), other.string(),
                        model_hash(other).substr(0, 16), "stage of kind heads"});
  EXPECT_EQ(error_of([&] { check_exit_directory(exits_directory(own), other); }), message);
  EXPECT_EQ(load_error(exits_directory(own), other, false), "no error") << "as in checkpoints of training";
  EXPECT_EQ(error_of([&] { check_exit_directory(exits_directory(own)); }), "no error") << "by itself";
  TransformerConfig wide = exits_t5();
  wide.width = 24;
  wide.output_scale = 1 / std::sqrt(24.0);
  wide.decoder_layers = 2;
  const fs::path shape = save("shape", wide);
  expect_said(load_error(exits_directory(own), shape, false), {"another width", "20", "24", "decoder layers"});
}

TEST_F(ExitDirectories, ThatAreBoundToNoModelAreOfCheckpointsAlone) {
  const fs::path model = save("model", exits_t5());
  expect_said(after_change(model, "/model/sha256", ""), {"bound to no model", "checkpoint"});
}

// What pruning makes is another model: the exits of the whole one do not fit it.
TEST_F(ExitDirectories, StayBehindWhenTheModelIsPruned) {
  const fs::path whole = save("whole", tiny_llama(3));
  PruneOptions options;
  options.decoder_layers = "first:2";
  save_model(root_ / "cut", *prune(*load_model(whole, {.pack = false}), options));
  EXPECT_FALSE(fs::exists(root_ / "cut/draftsmith"));
  expect_said(load_error(exits_directory(whole), root_ / "cut"), {"belong to another model"});
}

TEST_F(ExitDirectories, DamagedDescriptionsAreRefusedByName) {
  const fs::path model = save("model", exits_t5());
  const auto refused = [&](const std::string& pointer, const nlohmann::json& value, const std::string& said) {
    expect_said(after_change(model, pointer, value), {said});
  };
  refused("/format", "router", "does not describe exits");
  refused("/format", 7, "format");
  refused("/format_version", 9, "another format version");
  refused("/model/sha256", "\x1b]0;", "\\x1b]0;");
  refused("/model/sha256", std::string(63, 'a'), "not a hash");
  refused("/model", "m", "model");
  refused("/model/layers", 0, "layers");
  refused("/model/width", -1, "width");
  refused("/model/rows", "many", "rows");
  refused("/model/norm", "batch", "not a kind of norm");
  refused("/model/norm", "layer", "kind of norm");
  refused("/model/width", 21, "another width");
  refused("/exits", 3, "not a list");
  refused("/exits", nlohmann::json::array(), "no exits");
  refused("/exits/0", 3, "exits[0]");
  refused("/exits/0/head", "huge", "shared, full or low_rank");
  refused("/exits/0/layer", 0, "outside the model");
  refused("/exits/2/layer", 4, "1..3");
  refused("/exits/0/layer", 2, "given twice");
  refused("/exits/0/layer", "1", "layer");
  refused("/exits/0/rank", 0, "rank");
  refused("/exits/0/rank", 21, "1 to 20");
  refused("/exits/0/rank", 3, "another shape");
  refused("/exits/1/head", "shared", "none of these exits has");
  refused("/exits/1/own_norm", "no", "own_norm");
  write_file_atomic(exits_directory(model) / "exits.json", "{\"format\": ");
  expect_said(load_error(exits_directory(model), model), {"exits.json"});
  fs::remove(exits_directory(model) / "exits.json");
  expect_said(load_error(exits_directory(model), model), {"holds no exits", "heads"});
  expect_said(load_error(root_ / "nowhere", model), {"no such directory"});
}

TEST_F(ExitDirectories, DamagedWeightsAreRefusedByName) {
  const fs::path model = save("model", exits_t5());
  const auto named = [](std::vector<TensorToStore>& tensors, const std::string& name) -> TensorToStore& {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const TensorToStore& each) { return each.name == name; });
  };
  using Tensors = std::vector<TensorToStore>;
  expect_said(after_change(model, [&](Tensors& t) { named(t, "exit.1.head.up").name = "exit.9.head.up"; }),
              {"is missing", "exit.1.head.up", "exit.9.head.up"});
  expect_said(after_change(model, [&](Tensors& t) { named(t, "exit.3.norm.weight").tensor = at::zeros({19}); }),
              {"exit.3.norm.weight", "[20]", "[19]"});
  expect_said(
      after_change(model,
                   [&](Tensors& t) {
                     named(t, "exit.3.norm.weight") = {"exit.3.norm.weight", at::zeros({20}, at::kLong), at::kLong};
                   }),
      {"no floating-point numbers", "I64"});
  const fs::path file = exits_directory(model) / "exits.safetensors";
  const std::string whole = read_file(file);
  std::string broken = whole;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(broken.data() + broken.size() - sizeof(nan), &nan, sizeof(nan));
  write_file_atomic(file, broken);
  expect_said(load_error(exits_directory(model), model), {"NaN", "train the exits again"});
  EXPECT_NE(error_of([&] { check_exit_directory(exits_directory(model)); }).find("NaN"), std::string::npos);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{40}, whole.size() - 1}) {
    write_file_atomic(file, whole.substr(0, size));
    expect_said(load_error(exits_directory(model), model), {"exits.safetensors"});
  }
  fs::remove(file);
  expect_said(load_error(exits_directory(model), model), {"exits.safetensors"});
}

TEST_F(ExitDirectories, AreDescribedWithTheSizesOfBothForms) {
  const fs::path model = save("model", exits_t5());  // width 20, 23 ids
  const std::string text = describe_exits(exits_directory(model));
  expect_said(text, {"exits of 3 layers, trained as heads", "work/target/model", model_hash(model).substr(0, 16)});
  expect_said(text, {"layer 1        a low-rank head of rank 2 and a norm of its own, 106 numbers; a full head: 460"});
  expect_said(text, {"layer 2        a full head, 460 numbers; low-rank: 43 for each rank"});
  expect_said(text, {"layer 3        the model's head and a norm of its own, 20 numbers\n"});
  nlohmann::json root = load_json(exits_directory(model) / "exits.json");
  root["trained_as"] = "a\x1b[31mb";
  root["model"]["name"] = "c\x1b[31md";
  write_json(exits_directory(model) / "exits.json", root);
  expect_said(describe_exits(exits_directory(model)), {"a\\x1b[31mb", "c\\x1b[31md"});
}

}  // namespace
}  // namespace draftsmith::model
