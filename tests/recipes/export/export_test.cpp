// Hugging Face directories that an export writes, with their exits, and models that it refuses.
#include <cmath>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "recipes/export/export_model.h"
#include "recipes/inspection.h"
#include "recipes/pipeline.h"
#include "recipes/pruning.h"
#include "tests/model/models/exits_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

class ExportTest : public testing::Test {
 protected:
  // Exports NAME as OUT.
  ExportSummary run(const std::string& name, const std::string& out, ExportOptions options = {}) const {
    options.model = folder_ / name;
    options.out = folder_ / out;
    return export_model(options);
  }
  // The error of an export that is refused; nothing may be left of it.
  std::string refused(const std::string& name, const ExportOptions& options) const {
    const std::string error = error_of([&] { run(name, "refused", options); });
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp"))) << "left behind";
    }
    return error;
  }

  const TemporaryDirectory folder_;
};

class Exporting : public ExportTest {
 protected:
  Exporting() {
    save("llama", model::tiny_llama());
    model::TransformerConfig t5 = model::tiny_t5();
    t5.output_scale = 1 / std::sqrt(static_cast<double>(t5.width));  // the one that files can hold
    save("t5", t5);
  }

  void save(const std::string& name, const model::TransformerConfig& config) const {
    model::save_model(folder_ / name, model::TransformerModel(config, 5));
  }
};

TEST_F(Exporting, WhatIsWrittenIsTheModel) {
  write_file_atomic(folder_ / "llama/generation_config.json",
                    R"({"eos_token_id": [1, 3], "repetition_penalty": 1.5, "num_assistant_tokens": 7})");
  for (const std::string name : {"llama", "t5"}) {
    const ExportSummary done = run(name, name + "_out");
    EXPECT_EQ(done.dtype, "F32");
    const auto before = model::load_model(folder_ / name, {.pack = false});
    const auto after = model::load_model(folder_ / (name + "_out"), {.pack = false});
    EXPECT_EQ(done.parameters, before->parameters().size());
    for (const auto& [parameter, tensor] : before->parameters()) {
      EXPECT_TRUE(at::equal(tensor, after->parameters().at(parameter))) << parameter;
    }
    EXPECT_THAT(verify(folder_ / (name + "_out")), IsEmpty());
  }
  EXPECT_EQ(load_json(folder_ / "llama_out/generation_config.json").at("num_assistant_tokens"), 7);
  EXPECT_EQ(load_json(folder_ / "llama_out/config.json").at("rope_theta"), 10000) << "for Transformers 4";
}

// A class in config.json alone is written beside the tokenizer, as the model's own configuration has none.
TEST_F(Exporting, AllOfATokenizerGoesWithAModel) {
  const fs::path from = folder_ / "tokenizer", to = folder_ / "written";
  for (const fs::path& folder : {from, to}) fs::create_directory(folder);
  for (const char* file : {"tokenizer.json", "tokenizer.model", "chat_template.jinja"}) {
    write_file_atomic(from / file, file);
  }
  write_file_atomic(from / "config.json", R"({"tokenizer_class": "MBart50Tokenizer"})");
  model::write_tokenizer(from / "tokenizer.json", model::tiny_llama(2), to);
  for (const char* file : {"tokenizer.json", "tokenizer.model", "chat_template.jinja"}) {
    EXPECT_EQ(read_file(to / file), file);
  }
  EXPECT_EQ(load_json(to / "tokenizer_config.json").at("tokenizer_class"), "MBart50Tokenizer");
  write_file_atomic(from / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  model::write_tokenizer(from / "tokenizer.json", model::tiny_llama(2), to);
  EXPECT_EQ(load_json(to / "tokenizer_config.json").at("tokenizer_class"), "LlamaTokenizer");
}

TEST_F(Exporting, ANarrowerTypeIsRounded) {
  ExportOptions options{.dtype = "bf16"};
  EXPECT_EQ(run("llama", "narrow", options).dtype, "BF16");
  EXPECT_THAT(read_file(folder_ / "narrow/config.json"), HasSubstr("bfloat16"));
  EXPECT_THAT(verify(folder_ / "narrow"), IsEmpty());
  EXPECT_EQ(run("narrow", "again").dtype, "BF16") << "stored as it was";
  options.dtype = "fp16";
  run("t5", "half", options);
  EXPECT_EQ(run("half", "half_again").dtype, "F16") << "although some of its weights stay fp32";
}

// Beside fp16 alone is fp32 an exception: beside bf16 it is the widest type of the model.
TEST_F(Exporting, TheStoredTypeLosesNothing) {
  run("t5", "mixed", {.dtype = "bf16"});
  const fs::path file = folder_ / "mixed/model.safetensors";
  std::vector<model::TensorToStore> tensors;
  {
    const model::SafetensorsFile opened(file);
    for (const auto& [name, entry] : opened.tensors()) {
      const bool down = name.ends_with("DenseReluDense.wo.weight");
      const at::Tensor value = opened.stored(name).to(at::kFloat);
      tensors.push_back({name, down ? value + 1e-4 : value, down ? at::kFloat : at::kBFloat16});
    }
  }
  model::write_safetensors(file, tensors);
  EXPECT_EQ(run("mixed", "mixed_out").dtype, "F32");
}

TEST_F(Exporting, ATypeThatCannotHoldTheModelIsTheUsersToCorrect) {
  const auto save_scaled = [&](const std::string& name, double factor) {
    const model::TransformerModel model(model::tiny_llama(), 5);
    model.parameters().at("embedding.weight").mul_(factor);
    model::save_model(folder_ / name, model);
  };
  ExportOptions half{.dtype = "fp16"};
  save_scaled("large", 1e9);
  EXPECT_THAT(refused("large", half), AllOf(HasSubstr("cannot be held in fp16"), HasSubstr("embedding.weight overflow"),
                                            HasSubstr("choose --dtype stored or bf16")));
  save_scaled("small", 1e-10);  // 0 in fp16
  EXPECT_THAT(refused("small", half), AllOf(HasSubstr("cannot be held in fp16"), HasSubstr("embedding.weight vanish")));
  half.dtype = "bf16";
  EXPECT_EQ(run("large", "large_out", half).dtype, "BF16");
}

TEST_F(Exporting, ShardsHaveTheSizeThatIsAskedFor) {
  model::TransformerConfig config = model::tiny_llama();
  config.width = 240;
  config.ff_width = 400;
  save("wide", config);
  run("wide", "shards", {.shard_megabytes = 1});
  EXPECT_TRUE(fs::exists(folder_ / "shards/model.safetensors.index.json"));
  for (const auto& entry : fs::directory_iterator(folder_ / "shards")) EXPECT_LT(entry.file_size(), 1'010'000);
  EXPECT_THAT(verify(folder_ / "shards"), IsEmpty());
  EXPECT_THAT(option_problems(ExportOptions{.format = "gguf", .shard_megabytes = 1}), HasSubstr("one file"));
}

TEST_F(Exporting, WhatIsThereIsNotOverwritten) {
  make_directories(folder_ / "taken");
  write_file_atomic(folder_ / "taken/mine.txt", "mine");
  EXPECT_THAT(error_of([&] { run("llama", "taken"); }), HasSubstr("is not overwritten"));
  EXPECT_EQ(read_file(folder_ / "taken/mine.txt"), "mine");
  make_directories(folder_ / "empty");
  run("llama", "empty/");
  run("llama", "new/deep/place");
  EXPECT_THAT(verify(folder_ / "new/deep/place"), IsEmpty());
}

TEST_F(Exporting, ModelsThatAFormatCannotHoldAreRefusedWithTheReason) {
  ExportOptions vllm;
  vllm.format = "vllm";
  EXPECT_THAT(refused("t5", vllm), HasSubstr("vLLM runs no encoder-decoder models"));
  model::TransformerConfig other = model::tiny_llama();
  other.vocabulary = 40;
  save("padded", other);
  vllm.target = folder_ / "padded";
  EXPECT_THAT(refused("llama", vllm), HasSubstr("as many ids as its target"));
  run("llama", "vllm_out", {.format = "vllm"});
  EXPECT_THAT(read_file(folder_ / "vllm_out/README.md"), HasSubstr("\"method\": \"draft_model\""));

  model::TransformerConfig pruned = model::tiny_llama();
  pruned.draft_vocabulary = {.ids = {0, 1, 2, 5, 9, 30}, .stand_in = 2};
  save("pruned", pruned);
  for (const char* format : {"hf", "vllm"}) {
    EXPECT_THAT(refused("pruned", {.format = format}), HasSubstr("pruned vocabulary")) << format;
  }

  make_directories(folder_ / "tandem");
  write_file_atomic(folder_ / "tandem/config.json", R"({"architectures": ["DraftsmithTandemLlamaForCausalLM"]})");
  make_directories(folder_ / "shared");
  write_file_atomic(folder_ / "shared/config.json",
                    R"({"architectures": ["DraftsmithSharedEncoderT5ForConditionalGeneration"]})");
  for (const char* format : {"hf", "vllm"}) {
    EXPECT_THAT(refused("tandem", {.format = format}), HasSubstr("is a model of another kind")) << format;
    EXPECT_THAT(refused("shared", {.format = format}), HasSubstr("is a model of another kind")) << format;
  }
}

TEST_F(Exporting, WrongModelsAreExplained) {
  EXPECT_THAT(refused("nowhere", {}), HasSubstr("no such model directory"));
  fs::resize_file(folder_ / "llama/model.safetensors", 1000);
  EXPECT_NE(refused("llama", {}), "no error");
}

TEST_F(Exporting, TheCardSaysWhatItIs) {
  save("target", model::tiny_llama(3));
  run("llama", "out", {.target = folder_ / "target"});
  const std::string card = read_file(folder_ / "out/README.md");
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: transformers\ntags:\n"));
  EXPECT_THAT(card, AllOf(HasSubstr("# out\n"), HasSubstr("drafter of `" + (folder_ / "target").string() + "`"),
                          HasSubstr("LlamaForCausalLM (llama)"), HasSubstr("31 token ids, stored as F32"),
                          HasSubstr("assistant_model=drafter")));
  run("t5", "t5_out");
  EXPECT_THAT(read_file(folder_ / "t5_out/README.md"),
              AllOf(Not(HasSubstr("drafter of")), HasSubstr("AutoModelForSeq2SeqLM")));
}

TEST_F(Exporting, AModelThatChangedSinceItsStageIsNotExported) {
  save("work/drafter-11111111/model", model::tiny_llama());
  write_done(folder_ / "work/drafter-11111111", {.stage = "drafter", .kind = "train"});
  run("work/drafter-11111111/model", "out");
  const fs::path config = folder_ / "work/drafter-11111111/model/config.json";
  write_file_atomic(config, read_file(config) + " ");
  EXPECT_THAT(refused("work/drafter-11111111/model", {}), HasSubstr("was changed after the stage had finished"));
}

class ExitsOfDirectories : public ExportTest {
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

  fs::path weights(const std::string& name) const {
    return model::exits_directory(folder_ / name) / "exits.safetensors";
  }
};

TEST_F(ExitsOfDirectories, AreShownAndVerifiedWithTheirModel) {
  EXPECT_THAT(inspect(folder_ / "t5"), AllOf(HasSubstr("model of family t5"), HasSubstr("exits of 3 layers"),
                                             HasSubstr("a low-rank head of rank 2"), HasSubstr("106 numbers")));
  EXPECT_THAT(verify(folder_ / "t5"), IsEmpty());
  std::string bytes = read_file(weights("t5"));
  write_file_atomic(weights("t5"), bytes.substr(0, bytes.size() - 4));
  EXPECT_THAT(text_of(verify(folder_ / "t5")), HasSubstr("exits.safetensors"));
  EXPECT_NE(error_of([&] { inspect(folder_ / "t5"); }), "no error");
  fs::remove_all(model::exits_directory(folder_ / "t5"));
  fs::copy(model::exits_directory(folder_ / "llama"), model::exits_directory(folder_ / "t5"));
  EXPECT_THAT(text_of(verify(folder_ / "t5")), HasSubstr("belong to another model"));
  EXPECT_THAT(refused("t5", {}), HasSubstr("belong to another model"));
}

TEST_F(ExitsOfDirectories, AreShownAndVerifiedAlone) {
  const fs::path inside = model::exits_directory(folder_ / "t5");
  fs::copy(inside, folder_ / "alone");
  for (const fs::path& exits : {inside, folder_ / "alone"}) {
    EXPECT_THAT(inspect(exits), AllOf(HasSubstr("exits of 3 layers, trained as heads"), HasSubstr("t5, sha256")));
    EXPECT_THAT(verify(exits), IsEmpty());
    EXPECT_FALSE(is_recorded(exits));
  }
}

TEST_F(ExitsOfDirectories, StayBehindWhenTheirModelIsPrunedOrExported) {
  run("llama", "out");
  EXPECT_FALSE(fs::exists(model::exits_directory(folder_ / "out")));
  prune_directory(folder_ / "llama", folder_ / "cut", {.decoder_layers = "first:2"});
  EXPECT_FALSE(fs::exists(model::exits_directory(folder_ / "cut")));
  EXPECT_THAT(inspect(folder_ / "cut"), Not(HasSubstr("exits")));
}

// In the form of `speculators`; what vLLM's layers cannot compute is refused.
TEST_F(Exporting, DraftersOfFeaturesAreEagle3Directories) {
  for (const char* name : {"llama", "t5"}) {
    const auto target = model::load_model(folder_ / name, {.pack = false});
    model::save_with_companion(folder_ / (std::string(name) + "-features"),
                               *model::make_feature_drafter(*target, {.vocabulary = {{0, 1, 2, 5, 9}, 2}}),
                               folder_ / name);
  }
  EXPECT_EQ(run("llama-features", "eagle", {.format = "vllm", .dtype = "bf16"}).eagle3, 3);
  const auto config = load_json(folder_ / "eagle/config.json");
  EXPECT_EQ(config.at("draft_vocab_size"), 5);
  EXPECT_EQ(config.at("norm_before_residual"), false);
  EXPECT_EQ(config.at("transformer_layer_config").at("num_aux_hidden_states"),
            config.at("eagle_aux_hidden_state_layer_ids").size());  // vLLM's own default is three
  const auto& verifier = config.at("speculators_config").at("verifier");
  EXPECT_EQ(verifier.at("architectures").at(0), "LlamaForCausalLM");
  EXPECT_EQ(verifier.at("name_or_path"), fs::canonical(folder_ / "llama").string());
  const model::WeightFiles files(folder_ / "eagle");
  EXPECT_EQ(files.entry("layers.0.self_attn.q_proj.weight").shape.at(1), 2 * model::tiny_llama().width);
  EXPECT_EQ(files.entry("fc.weight").dtype, "BF16");
  EXPECT_EQ(files.entry("d2t").shape, std::vector<int64_t>{5});
  for (const char* name : {"layers.0.hidden_norm.weight", "layers.0.input_layernorm.weight", "norm.weight",
                           "layers.0.post_attention_layernorm.weight", "lm_head.weight", "t2d"}) {
    EXPECT_TRUE(files.contains(name)) << name;
  }
  EXPECT_THAT(vllm_command("T", "D", 2), AllOf(HasSubstr("eagle3"), HasSubstr("\"num_speculative_tokens\": 2")));
  EXPECT_THAT(refused("llama-features", {.format = "hf"}), HasSubstr("--format vllm"));
  EXPECT_THAT(refused("t5-features", {.format = "vllm"}), HasSubstr("an encoder-decoder"));
  const auto target = model::load_model(folder_ / "llama", {.pack = false});
  model::save_with_companion(folder_ / "block", *model::make_feature_drafter(*target, {.block = true}),
                             folder_ / "llama");
  EXPECT_THAT(refused("block", {.format = "vllm"}), HasSubstr("block mode"));
  auto other = load_json(folder_ / "llama-features/config.json");
  other["hidden_act"] = "gelu";
  write_json(folder_ / "llama-features/config.json", other);
  EXPECT_THAT(refused("llama-features", {.format = "vllm"}), HasSubstr("another activation"));
}

// The head is the target's, in the type of its files; vLLM takes no maps beside a head of all ids.
TEST_F(Exporting, EveryTensorOfAnEagle3DirectoryKeepsItsType) {
  const auto target = model::load_model(folder_ / "llama", {.pack = false});
  const auto drafter = model::make_feature_drafter(*target);
  model::save_with_companion(folder_ / "half", *drafter, folder_ / "llama", {.dtype = at::kHalf});
  EXPECT_EQ(run("half", "eagle", {.format = "vllm"}).dtype, "F16");
  const model::WeightFiles files(folder_ / "eagle");
  EXPECT_EQ(files.entry("fc.weight").dtype, "F16");
  EXPECT_EQ(files.entry("lm_head.weight").dtype, "F32");
  EXPECT_FALSE(files.contains("d2t") || files.contains("t2d"));
  drafter->parameters().at("feature_projection.weight").mul_(1e9);
  model::save_with_companion(folder_ / "large", *drafter, folder_ / "llama");
  EXPECT_THAT(refused("large", {.format = "vllm", .dtype = "fp16"}), HasSubstr("fc.weight overflow"));
}

}  // namespace
}  // namespace draftsmith::recipes
