// Exits of a model: their forms, formulas and directories, and what is refused.
#include "model/models/exits.h"

#include <cstring>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

// The header's formula in tensor operations: norm, output scale, weight [rows,D], the model's bias. Without its cap.
at::Tensor formula(const TransformerModel& model, const Exits& exits, int64_t layer, const at::Tensor& hidden) {
  const TransformerConfig& config = model.config();
  const std::string prefix = "exit." + std::to_string(layer) + ".";
  const bool own = exits.find(layer)->own_norm;
  const auto norm_part = [&](const std::string& part) {
    return own ? exits.parameters().at(prefix + "norm." + part) : model.parameters().at("decoder.final_norm." + part);
  };
  const bool layer_norm = config.norm == Norm::kLayer;
  const at::Tensor centred = layer_norm ? hidden - hidden.mean(-1, true) : hidden;
  const double offset = config.norm == Norm::kRmsPlusOne ? 1 : 0;
  at::Tensor normed =
      centred / (centred.square().mean(-1, true) + config.norm_epsilon).sqrt() * (norm_part("weight") + offset);
  if (layer_norm) normed = normed + norm_part("bias");
  at::Tensor weight = model.parameters().at(config.tied_head ? "embedding.weight" : "head.weight");
  const auto part = [&](const char* name) { return exits.parameters().at(prefix + name); };
  if (exits.find(layer)->head == ExitHead::kFull) weight = part("head.weight");
  if (exits.find(layer)->head == ExitHead::kLowRank) weight = weight + part("head.up").matmul(part("head.down"));
  const at::Tensor rows = (normed * config.output_scale).matmul(weight.t());  // [...,rows]
  return config.head_bias ? rows + model.parameters().at("head.bias") : rows;
}

TEST(Exits, ComputeTheFormulaPlainAndPacked) {
  TransformerConfig capped = tiny_forms()[5];
  capped.draft_vocabulary = exits_pruned_llama().draft_vocabulary;
  for (const TransformerConfig& config :
       {exits_t5(), tiny_llama(3), tiny_bloom(), exits_pruned_llama(), tiny_forms()[1], capped}) {
    for (size_t first = 0; first < 6; first += 3) {
      const auto model = varied_model(config, 7);
      Exits exits(forms_for(config, first), *model, 5);
      disturb(exits);
      const at::Tensor hidden = random_hidden(config, at::kDouble);
      std::vector<at::Tensor> wanted;
      for (int64_t layer = 1; layer <= 3; ++layer) {
        const at::Tensor rows = formula(*model, exits, layer, hidden);
        const double cap = config.logit_cap;
        wanted.push_back(model->vocabulary_rows().spread(cap > 0 ? cap * at::tanh(rows / cap) : rows,
                                                         -std::numeric_limits<double>::infinity()));
        EXPECT_EQ(exits.head(*model, layer).cap, cap);
        EXPECT_TRUE(at::allclose(exits.logits(*model, layer, hidden), wanted.back(), 1e-10, 1e-10)) << layer;
        const HeadWeights head = exits.head(*model, layer);
        at::Tensor by_weight = exits.finish(*model, layer, hidden).matmul(dense(head).t());  // [...,rows]
        if (head.bias.defined()) by_weight = by_weight + head.bias;
        EXPECT_TRUE(at::allclose(by_weight, rows, 1e-10, 1e-10)) << layer;
      }
      model->to(at::kCPU, at::kFloat);
      model->pack();
      exits.to(at::kCPU, at::kFloat);
      exits.pack();
      const at::NoGradGuard no_gradients;
      for (int64_t layer = 1; layer <= 3; ++layer) {
        const at::Tensor logits = exits.logits(*model, layer, hidden.to(at::kFloat));
        EXPECT_TRUE(at::allclose(logits.to(at::kDouble), wanted[static_cast<size_t>(layer - 1)], 1e-4, 1e-4)) << layer;
      }
    }
  }
}

TEST(Exits, LayersWithoutAnExitReadTheModelsOwnNormAndHead) {
  const auto model = tiny_model(exits_t5(), at::kFloat);
  Exits exits({.exits = {{.layer = 2, .head = ExitHead::kFull, .own_norm = true}}}, *model, 5);
  disturb(exits);
  const at::Tensor hidden = random_hidden(model->config(), at::kFloat), own = model->exit_head(hidden);
  EXPECT_EQ(exits.find(1), nullptr);
  ASSERT_NE(exits.find(2), nullptr);
  EXPECT_TRUE(at::equal(exits.logits(*model, 1, hidden), own));
  EXPECT_TRUE(at::equal(exits.finish(*model, 3, hidden), model->finish(hidden)));
  EXPECT_TRUE(exits.head(*model, 1).weight.is_same(model->parameters().at("embedding.weight")));
  EXPECT_TRUE(at::equal(exit_logits(*model, nullptr, 2, hidden), own));
  EXPECT_FALSE(at::equal(exit_logits(*model, &exits, 2, hidden), own));
}

TEST(Exits, WhatFitsNoModelIsRefusedByName) {
  const auto model = tiny_model(exits_t5(), at::kFloat);  // 3 decoder layers, width 20
  const auto refusal = [&](std::vector<ExitShape> exits) {
    return error_of([&] { Exits({.exits = std::move(exits)}, *model, 1); });
  };
  const auto low_rank = [](int64_t rank) { return ExitShape{.layer = 1, .head = ExitHead::kLowRank, .rank = rank}; };
  EXPECT_THAT(refusal({}), HasSubstr("no exits"));
  EXPECT_THAT(refusal({{.layer = 0}}), HasSubstr("outside the model"));
  EXPECT_THAT(refusal({{.layer = 2}, {.layer = 2}}), HasSubstr("given twice"));
  EXPECT_THAT(refusal({{.layer = 2}, {.layer = 1}}), HasSubstr("out of order"));
  EXPECT_THAT(refusal({low_rank(21)}), HasSubstr("1 to 20"));
  EXPECT_EQ(refusal({low_rank(20), {.layer = 3}}), "no error");
  EXPECT_THAT(refusal({{.layer = 5}, low_rank(-1)}), AllOf(HasSubstr("1..3"), HasSubstr("5"), HasSubstr("rank")));
  const TransformerModel without_norm(tiny_forms()[0], 3);
  EXPECT_THAT(error_of([&] { Exits({.exits = {{.layer = 1, .own_norm = true}}}, without_norm, 1); }),
              HasSubstr("ends without a norm"));
  const TransformerModel blocks(block_prediction_config(tiny_bloom(), 4), 3);
  EXPECT_THAT(error_of([&] { Exits({.exits = {{.layer = 1}}}, blocks, 1); }), HasSubstr("block prediction"));
}

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

  static void expect_said(const std::string& message, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
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

TEST_F(ExitDirectories, OfAnotherModelAreRefusedNamingBoth) {
  const fs::path own = save("own", exits_t5()), other = save("other", exits_t5(), 8);
  const std::string message = load_error(exits_directory(own), other);
  expect_said(message, {"belong to another model", "work/target/model", model_hash(own).substr(0, 16), other.string(),
                        model_hash(other).substr(0, 16), "stage of kind heads"});
  EXPECT_EQ(error_of([&] { check_exit_directory(exits_directory(own), other); }), message);
  EXPECT_EQ(load_error(exits_directory(own), other, false), "no error") << "as in checkpoints of training";
  EXPECT_EQ(error_of([&] { check_exit_directory(exits_directory(own)); }), "no error") << "by itself";
}

TEST_F(ExitDirectories, DamagedDescriptionsAreRefusedByName) {
  struct Refused {
    std::string pointer;
    nlohmann::json value;
    std::string said;
  };
  const fs::path model = save("model", exits_t5());
  for (const Refused& one : std::vector<Refused>{{"/format", "router", "does not describe exits"},
                                                 {"/format_version", 9, "another format version"},
                                                 {"/model/sha256", "\x1b]0;", "\\x1b]0;"},
                                                 {"/model/sha256", std::string(63, 'a'), "not a hash"},
                                                 {"/model/sha256", "", "bound to no model"},
                                                 {"/model", "m", "model"},
                                                 {"/exits", 3, "not a list"},
                                                 {"/exits", nlohmann::json::array(), "no exits"},
                                                 {"/exits/0", 3, "exits[0]"},
                                                 {"/exits/0/head", "huge", "shared, full or low_rank"},
                                                 {"/exits/2/layer", 4, "1..3"},
                                                 {"/exits/0/layer", "1", "layer"},
                                                 {"/exits/0/rank", 3, "another shape"},
                                                 {"/exits/1/head", "shared", "is none of these"},
                                                 {"/exits/1/own_norm", "no", "own_norm"}}) {
    expect_said(after_change(model, one.pointer, one.value), {one.said});
  }
  write_file_atomic(exits_directory(model) / "exits.json", "{\"format\": ");
  expect_said(load_error(exits_directory(model), model), {"exits.json"});
  fs::remove(exits_directory(model) / "exits.json");
  expect_said(load_error(exits_directory(model), model), {"holds no exits", "heads"});
  expect_said(load_error(root_ / "nowhere", model), {"no such directory"});
}

TEST_F(ExitDirectories, DamagedWeightsAreRefusedByName) {
  const fs::path model = save("model", exits_t5());
  const fs::path file = exits_directory(model) / "exits.safetensors";
  const std::string whole = read_file(file);
  std::string broken = whole;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(broken.data() + broken.size() - sizeof(nan), &nan, sizeof(nan));
  write_file_atomic(file, broken);
  expect_said(load_error(exits_directory(model), model), {"NaN", "train the exits again"});
  expect_said(error_of([&] { check_exit_directory(exits_directory(model)); }), {"NaN"});
  for (const size_t size : {size_t{0}, size_t{5}, size_t{40}, whole.size() - 1}) {
    write_file_atomic(file, whole.substr(0, size));
    expect_said(load_error(exits_directory(model), model), {"exits.safetensors"});
  }
  fs::remove(file);
  expect_said(load_error(exits_directory(model), model), {"exits.safetensors"});
}

TEST_F(ExitDirectories, AreDescribedWithTheirSizes) {
  const fs::path model = save("model", exits_t5());  // width 20, 23 ids
  const std::string text = describe_exits(exits_directory(model));
  expect_said(text, {"exits of 3 layers, trained as heads", "work/target/model", model_hash(model).substr(0, 16)});
  expect_said(text, {"layer 1        a low-rank head of rank 2 and a norm of its own, 106 numbers"});
  nlohmann::json root = load_json(exits_directory(model) / "exits.json");
  root["trained_as"] = "a\x1b[31mb";
  root["model"]["name"] = "c\x1b[31md";
  write_json(exits_directory(model) / "exits.json", root);
  expect_said(describe_exits(exits_directory(model)), {"a\\x1b[31mb", "c\\x1b[31md"});
}

}  // namespace
}  // namespace draftsmith::model
