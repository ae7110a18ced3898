// Loading, saving and copying model directories: who decides whether the head is tied, what may lie beside the weights,
// what is written, and whose hash changes.
#include "model/files/checkpoint.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A directory with the tiny T5 of checkpoint_files.h, its config changed and some tensors more.
class Checkpoint : public testing::Test {
 protected:
  fs::path write(const json& changes, const std::vector<TensorToStore>& more = {}, const std::string& without = "") {
    json config = tiny_t5_config();
    config.update(changes.is_null() ? json::object() : changes);  // {} is null
    fs::path directory = root_ / ("model-" + std::to_string(count_++));
    make_directories(directory);
    write_json(directory / "config.json", config);
    std::vector<TensorToStore> tensors = tensors_of(config);
    std::erase_if(tensors, [&](const TensorToStore& item) { return item.name == without; });
    for (const TensorToStore& item : more) {
      std::erase_if(tensors, [&](const TensorToStore& old) { return old.name == item.name; });
      tensors.push_back(item);
    }
    write_safetensors(directory / "model.safetensors", tensors);
    return directory;
  }

  static TensorToStore tensor(const std::string& name, const at::Tensor& value) { return {name, value, at::kFloat}; }
  static at::Tensor embedding() { return tensors_of(tiny_t5_config()).front().tensor; }

  const TemporaryDirectory root_;
  int count_ = 0;
};

TEST_F(Checkpoint, TheStoredTensorsDecideWhetherTheHeadIsTied) {
  const TensorToStore own_head = tensor("lm_head.weight", at::ones({11, 6}));
  const TensorToStore copied_head = tensor("lm_head.weight", embedding());
  EXPECT_TRUE(ModelDirectory(write({})).config().tied_head);
  EXPECT_FALSE(ModelDirectory(write({{"tie_word_embeddings", true}}, {own_head})).config().tied_head);
  EXPECT_TRUE(ModelDirectory(write({{"tie_word_embeddings", true}}, {copied_head})).config().tied_head);
  EXPECT_FALSE(ModelDirectory(write({{"tie_word_embeddings", false}}, {copied_head})).config().tied_head);
  EXPECT_TRUE(ModelDirectory(write({{"tie_word_embeddings", false}}, {}, "lm_head.weight")).config().tied_head);
  json llama = json::parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 6, "intermediate_size": 7,
    "num_attention_heads": 3, "num_hidden_layers": 1, "max_position_embeddings": 9})");
  EXPECT_TRUE(ModelDirectory(write(llama, {}, "lm_head.weight")).config().tied_head);
  llama["tie_word_embeddings"] = false;
  EXPECT_THAT(error_of([&] { ModelDirectory opened(write(llama, {}, "lm_head.weight")); }),
              AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("\"tie_word_embeddings\": true")));
}

TEST_F(Checkpoint, TheOutputIsScaledAsTheFlagsSayAndNeverInMt5) {
  const double scaled = 1.0 / std::sqrt(6.0);
  const auto scale = [&](const json& changes) { return read_settings(write(changes)).config.output_scale; };
  EXPECT_DOUBLE_EQ(scale({}), scaled);
  EXPECT_DOUBLE_EQ(scale({{"tie_word_embeddings", false}}), 1.0);
  EXPECT_DOUBLE_EQ(scale({{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}}), 1.0);
  EXPECT_DOUBLE_EQ(scale({{"tie_word_embeddings", false}, {"scale_decoder_outputs", true}}), scaled);
  const json mt5 = {{"architectures", {"MT5ForConditionalGeneration"}}, {"model_type", "mt5"}};
  EXPECT_DOUBLE_EQ(scale(mt5), 1.0);
  json flagged = mt5;
  flagged["tie_word_embeddings"] = flagged["scale_decoder_outputs"] = true;
  EXPECT_DOUBLE_EQ(scale(flagged), 1.0);
}

TEST_F(Checkpoint, FeedForwardKeysAreReadAsTransformersReadsThem) {
  const auto read = [&](const json& changes) { return read_settings(write(changes)).config; };
  EXPECT_EQ(read({{"feed_forward_proj", "gated-gelu"}}).activation, Activation::kGeluTanh);
  EXPECT_TRUE(read({{"feed_forward_proj", "gated-gelu"}}).gated);
  EXPECT_EQ(read({{"feed_forward_proj", "gelu"}}).activation, Activation::kGelu);
  EXPECT_FALSE(read({{"feed_forward_proj", "gelu"}}).gated);
  EXPECT_EQ(read({{"feed_forward_proj", "gated-silu"}}).activation, Activation::kSilu);
  EXPECT_EQ(read({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}}).activation, Activation::kGelu);
}

TEST_F(Checkpoint, EmbeddingCopiesAndUnusedBiasesAreAcceptedOthersAreNot) {
  const auto open = [&](const TensorToStore& more) {
    return error_of([&] { ModelDirectory opened(write({}, {more})); });
  };
  EXPECT_EQ(open(tensor("encoder.embed_tokens.weight", embedding())), "no error");
  EXPECT_EQ(open(tensor("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", at::ones({32, 2}))),
            "no error");
  EXPECT_THAT(open(tensor("decoder.embed_tokens.weight", at::ones({11, 6}))),
              AllOf(HasSubstr("decoder.embed_tokens.weight"), HasSubstr("copy of 'shared.weight'")));
  EXPECT_THAT(open(tensor("decoder.block.7.weight", at::ones({1}))), HasSubstr("decoder.block.7.weight"));
}

TEST_F(Checkpoint, TheEmbeddingIsFoundUnderAnotherTiedName) {
  for (const char* name : {"encoder.embed_tokens.weight", "lm_head.weight"}) {
    const auto model = load_model(write({}, {tensor(name, embedding())}, "shared.weight"), {.pack = false});
    EXPECT_TRUE(at::equal(model->parameters().at("embedding.weight"), embedding())) << name;
    EXPECT_TRUE(model->config().tied_head);
  }
}

TEST_F(Checkpoint, SavedModelsLoadBitForBitWithEveryFile) {
  const auto model = load_model(
      write({{"feed_forward_proj", "gated-gelu"}}, {tensor("lm_head.weight", at::ones({11, 6}))}), {.pack = false});
  write_file_atomic(root_ / "my.model", "not checked here");
  SaveOptions options{.shard_bytes = 1000, .tokenizer = root_ / "my.model"};
  const fs::path saved = root_ / "new" / "parents" / "saved";
  save_model(saved, *model, options);

  const auto again = load_model(saved, {.pack = false});
  ASSERT_EQ(again->parameters().size(), model->parameters().size());
  for (const auto& [name, value] : model->parameters()) {
    EXPECT_TRUE(at::equal(value, again->parameters().at(name))) << name;
  }
  EXPECT_GT(WeightFiles(saved).files().size(), 1);
  EXPECT_EQ(read_file(saved / "spiece.model"), "not checked here");
  EXPECT_EQ(load_json(saved / "tokenizer_config.json")["extra_ids"], 0);
  const json config = load_json(saved / "config.json");
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["scale_decoder_outputs"], true);
  EXPECT_EQ(config["feed_forward_proj"], "gated-gelu");
  EXPECT_EQ(load_json(saved / "generation_config.json")["decoder_start_token_id"], 0);
}

TEST_F(Checkpoint, SavingNeverOverwritesAndLeavesNothingBehindWhenItFails) {
  const fs::path original = write({});
  const auto model = load_model(original, {.pack = false});
  EXPECT_THAT(error_of([&] { save_model(original, *model); }), HasSubstr("not overwritten"));
  model->parameters().at("encoder.final_norm.weight").fill_(std::numeric_limits<float>::infinity());
  EXPECT_THROW(save_model(root_ / "bad" / "model", *model), RunError);
  EXPECT_TRUE(fs::is_empty(root_ / "bad"));
  fs::create_directory_symlink("bad", root_ / "link");
  EXPECT_EQ(require_free_place(root_ / "link"), fs::canonical(root_ / "bad"));
  const fs::path before = fs::current_path();
  fs::current_path(root_ / "bad");
  EXPECT_THAT(error_of([&] { require_free_place("."); }), HasSubstr("a directory in use"));
  fs::current_path(before);
}

class CopyModel : public testing::Test {
 protected:
  CopyModel() { save_model(from_, *varied_model(tiny_llama(3), 3, at::kFloat)); }
  void add(const std::string& file) const {
    make_directories((from_ / file).parent_path());
    write_file_atomic(from_ / file, "x");
  }

  TemporaryDirectory root_;
  fs::path from_ = root_ / "from", to_ = root_ / "to";
};

TEST_F(CopyModel, IsTheSameModelWithWhatBelongsToIt) {
  add("draftsmith/exits/exits.json");
  add("draftsmith/notes.json");
  copy_model(from_, to_);
  EXPECT_EQ(model_hash(to_), model_hash(from_));
  EXPECT_TRUE(fs::exists(to_ / "draftsmith" / "exits" / "exits.json"));
  EXPECT_TRUE(fs::exists(to_ / "draftsmith" / "notes.json"));
}

TEST_F(CopyModel, LeavesBehindHiddenFilesFoldersAndLinksThatLeadNowhere) {
  add(".git/HEAD");
  add("onnx/model.onnx");
  fs::create_symlink(from_ / "gone", from_ / "weights.bin");
  copy_model(from_, to_);
  EXPECT_EQ(model_hash(to_), model_hash(from_));
  for (const char* file : {".git", "onnx", "weights.bin"}) EXPECT_FALSE(fs::exists(to_ / file)) << file;
}

TEST_F(CopyModel, CanBeWrittenWhereTheModelCannot) {
  add("draftsmith/exits/exits.json");
  for (const auto& entry : fs::recursive_directory_iterator(from_)) {
    fs::permissions(entry, fs::perms::owner_write, fs::perm_options::remove);
  }
  copy_model(from_, to_);
  const auto writable = [](const fs::path& path) {
    return (fs::status(path).permissions() & fs::perms::owner_write) != fs::perms::none;
  };
  for (const auto& entry : fs::recursive_directory_iterator(to_)) EXPECT_TRUE(writable(entry)) << entry.path();
}

void save(const fs::path& directory, uint64_t seed) {
  const TransformerConfig config =
      t5_config({.vocabulary = 11, .width = 4, .heads = 1, .head_width = 4, .ff_width = 4, .decoder_layers = 1});
  save_model(directory, TransformerModel(config, seed));
}

TEST(ModelHash, IsOfConfigurationAndWeightsWhereverTheyLie) {
  const TemporaryDirectory folder;
  save(folder / "a", 1);
  save(folder / "b", 2);
  const std::string hash = model_hash(folder / "a");
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_NE(model_hash(folder / "b"), hash);
  fs::rename(folder / "a", folder / "moved");
  write_file_atomic(folder / "moved" / "generation_config.json", "{}");
  write_file_atomic(folder / "moved" / "README.md", "a card");
  EXPECT_EQ(model_hash(folder / "moved"), hash);
  write_file_atomic(folder / "moved" / "config.json", read_file(folder / "moved" / "config.json") + " ");
  EXPECT_NE(model_hash(folder / "moved"), hash);
}

}  // namespace
}  // namespace draftsmith::model
