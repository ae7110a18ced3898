// GGUF files: what an export says in them, and an export is the model or nothing. Parity tests compare the tensors.
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/sentencepiece.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "recipes/export/export_model.h"
#include "tests/data/tokenizers/tokenizer_files.h"
#include "tests/support/errors.h"
#include "tests/support/families.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"
#include "tests/support/scoped_variable.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

class GgufExports : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(draftsmith::test::peers_python())) GTEST_SKIP() << "no Python with gguf (DRAFTSMITH_PEERS_PYTHON)";
  }
  void save(const std::string& name, const model::TransformerConfig& config) const {
    model::save_model(folder_ / name, *model::varied_model(config, 5, at::kFloat));
  }
  // Saves a Llama with as many ids as its tokenizer.json may have.
  void save_llama() const {
    model::TransformerConfig config = model::tiny_llama();
    config.vocabulary = 260;
    save("llama", config);
  }
  ExportSummary run(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    return export_model({.model = folder_ / name, .out = folder_ / out, .format = "gguf", .dtype = dtype});
  }
  // Returns the bytes of the file that is written of the Llama.
  std::string file_of_llama() const {
    fs::remove(folder_ / "a.gguf");
    run("llama", "a.gguf");
    return read_file(folder_ / "a.gguf");
  }
  // The error of an export that is refused; nothing may be left of it.
  std::string refused(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    const std::string error = error_of([&] { run(name, out, dtype); });
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp"))) << "left behind";
    }
    return error;
  }

  const TemporaryDirectory folder_;
  const ScopedVariable python_{"DRAFTSMITH_PYTHON", draftsmith::test::peers_python().string()};
};

TEST_F(GgufExports, HaveTheTypeThatIsAskedFor) {
  model::TransformerConfig config = model::tiny_llama();
  config.ff_width = 32;  // a whole block
  save("llama", config);
  const ExportSummary done = run("llama", "whole.gguf");
  EXPECT_EQ(done.dtype, "F32");
  EXPECT_EQ(done.parameters, model::load_model(folder_ / "llama", {.pack = false})->parameters().size());
  EXPECT_EQ(run("llama", "half.gguf", "fp16").dtype, "F16");
  EXPECT_EQ(run("llama", "blocks.gguf", "q8_0").dtype, "Q8_0");
  EXPECT_LT(fs::file_size(folder_ / "half.gguf"), fs::file_size(folder_ / "whole.gguf"));
  const std::string seven("\4\0\0\0\7\0\0\0", 8);  // as a number of type 4
  EXPECT_THAT(read_file(folder_ / "blocks.gguf"), HasSubstr("general.file_type" + seven));
}

TEST_F(GgufExports, HoldTokensAndTheChatTemplate) {
  save_llama();
  write_file_atomic(folder_ / "llama/tokenizer_config.json", R"({"chat_template": "{{ of_the_settings }}"})");
  EXPECT_THAT(file_of_llama(), HasSubstr("no_vocab"));
  write_json(folder_ / "llama/tokenizer.json", data::byte_level_json({"a b"}));
  EXPECT_THAT(file_of_llama(), AllOf(HasSubstr("gpt2"), HasSubstr("[UNUSED259]"), Not(HasSubstr("[UNUSED260]")),
                                     HasSubstr("{{ of_the_settings }}")));
  write_file_atomic(folder_ / "llama/chat_template.jinja", "{{ of_the_file }}");
  EXPECT_THAT(file_of_llama(), HasSubstr("{{ of_the_file }}"));
  write_json(folder_ / "llama/tokenizer.json", data::byte_fallback_json({"a"}, {}));
  EXPECT_THAT(refused("llama", "never.gguf"), HasSubstr("llama.cpp has no such tokenizer"));
  save("few", model::tiny_llama());  // 31 ids
  write_json(folder_ / "few/tokenizer.json", data::byte_level_json({"a b"}));
  EXPECT_THAT(refused("few", "never.gguf"), HasSubstr("more ids than the model has embeddings"));
  // A SentencePiece model beside the tokenizer.json that was made of it.
  data::train_tokenizer({"the cat sees the dog", "a dog sees a cat"}, {.vocabulary = 40, .exact_size = false},
                        folder_ / "llama/tokenizer.model");
  write_file_atomic(folder_ / "llama/generation_config.json", R"({"eos_token_id": [1, 7]})");
  EXPECT_THAT(file_of_llama(),
              AllOf(HasSubstr("tokenizer.ggml.scores"), HasSubstr(std::string("eot_token_id\4\0\0\0\7", 17))));
  write_file_atomic(folder_ / "llama/generation_config.json", R"({"eos_token_id": [1, 7, 8, 9]})");
  EXPECT_THAT(refused("llama", "never.gguf"), HasSubstr("more ids that end a text"));
}

TEST_F(GgufExports, ScaledRotationBecomesFactors) {
  model::TransformerConfig config = model::tiny_llama();
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  config.rotary.scaling = model::RotaryScaling::kLlama3;
  config.rotary.factor = 8;
  config.rotary.original_positions = 32;
  save("llama", config);
  const std::string bytes = file_of_llama();
  EXPECT_THAT(bytes, AllOf(HasSubstr("rope_freqs.weight"), HasSubstr("blk.1.ffn_up.bias")));
  std::array<float, 8> factors{};  // the last tensor, filled up
  ASSERT_GE(bytes.size(), sizeof(factors));
  std::memcpy(factors.data(), bytes.data() + bytes.size() - sizeof(factors), sizeof(factors));
  EXPECT_GE(factors[0], 0.999f);
  EXPECT_NEAR(factors[1], 8, 1e-4);  // the slowest pair turns 8 times as slowly
}

TEST_F(GgufExports, PreTokenizersAreKnownByTheirSteps) {
  const std::string llama3 = R"({"type": "Split", "behavior": "Removed", "invert": true, "pattern": {"Regex": )" +
                             nlohmann::json(std::string(data::kLlama3Pattern)).dump() + "}}, ";
  const std::string digits = R"({"type": "Digits", "individual_digits": true}, )";
  const std::string words = R"({"type": "ByteLevel", "add_prefix_space": false})";
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  save_llama();
  for (const auto& [steps, ignore_merges, name] :
       std::vector<std::tuple<std::string, bool, std::string>>{{llama3 + bytes, true, "llama-bpe"},
                                                               {llama3 + bytes, false, "dbrx"},
                                                               {digits + words, false, "smollm"},
                                                               {words, true, ""},
                                                               {digits + llama3 + bytes, true, ""}}) {
    nlohmann::json json = data::byte_level_json({"a b"});
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::parse("[" + steps + "]")}};
    json["model"]["ignore_merges"] = ignore_merges;
    write_json(folder_ / "llama/tokenizer.json", json);
    if (name.empty()) {
      EXPECT_THAT(refused("llama", "never.gguf"), HasSubstr("llama.cpp has no such tokenizer")) << steps;
    } else {
      EXPECT_THAT(file_of_llama(), HasSubstr(name)) << steps;
    }
  }
  nlohmann::json json = data::byte_level_json({"a b"});
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::parse("[" + digits + words + "]")}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", nlohmann::json::array()}};
  write_json(folder_ / "llama/tokenizer.json", json);
  EXPECT_THAT(file_of_llama(), HasSubstr("smollm"));
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  write_json(folder_ / "llama/tokenizer.json", json);
  EXPECT_THAT(refused("llama", "never.gguf"), HasSubstr("a normalizer other than NFC"));
}

TEST_F(GgufExports, RefuseWhatTheyCannotHold) {
  model::TransformerConfig pausing = model::tiny_of(model::families().at("smollm3"));
  pausing.feed_forward_bias = true;
  pausing.rotary.scaling = model::RotaryScaling::kYarn;
  pausing.rotary.factor = 4;
  pausing.rotary.original_positions = 16;
  save("pausing", pausing);
  EXPECT_THAT(refused("pausing", "out.gguf"),
              AllOf(HasSubstr("no_rope_layer"), HasSubstr("mlp_bias"), HasSubstr("attention factor")));
  save("llama", model::tiny_llama());
  save("neox", model::tiny_neox());
  EXPECT_THAT(refused("neox", "out.gguf"), HasSubstr("GGUF is not written: models of this family are not exported"));
  const model::TransformerModel large(model::tiny_llama(), 5);
  large.parameters().at("embedding.weight").mul_(1e9);
  model::save_model(folder_ / "large", large);
  EXPECT_THAT(refused("large", "out.gguf", "fp16"), HasSubstr("embedding.weight overflow"));
  EXPECT_FALSE(fs::exists(folder_ / "out.gguf"));
  write_file_atomic(folder_ / "out.gguf", "kept");
  EXPECT_THAT(refused("llama", "out.gguf"), HasSubstr("exists already"));
  EXPECT_EQ(read_file(folder_ / "out.gguf"), "kept");
  const auto directory = error_of([&] {
    export_model({.model = folder_ / "llama", .out = folder_ / "directory", .format = "hf", .dtype = "q8_0"});
  });
  EXPECT_THAT(directory, HasSubstr("q8_0"));
  const fs::path bare = write_text(folder_ / "python", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
  fs::permissions(bare, fs::perms::owner_all);
  const ScopedVariable chosen("DRAFTSMITH_PYTHON", bare.string());
  EXPECT_THAT(refused("llama", "none.gguf"), HasSubstr("pip install gguf"));
}

}  // namespace
}  // namespace draftsmith::recipes
