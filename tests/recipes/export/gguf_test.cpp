// GGUF files: their bytes, and an export is the model or nothing. Parity tests read them by the `gguf` package.
#include "recipes/export/gguf.h"

#include <limits>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// A Llama with everything that has a form of its own in GGUF: biases, shared keys, scaled rotation.
model::TransformerConfig llama_for_gguf() {
  model::TransformerConfig config = model::tiny_llama(2);
  config.projection_bias = config.output_bias = config.feed_forward_bias = true;
  config.rotary.scaling = model::RotaryScaling::kLlama3;
  config.rotary.factor = 8;
  config.rotary.original_positions = 32;
  return config;
}

TEST(GgufBlocks, RoundByTheFactorBeforeItIsRounded) {
  std::vector<float> values(64, 0.0f);
  values[0] = 127;
  values[1] = 0.5f;
  values[2] = -0.5f;
  values[3] = -126.6f;
  const std::string blocks = to_blocks(values);
  ASSERT_EQ(blocks.size(), 2 * kBlockBytes);
  EXPECT_EQ(blocks.substr(0, 2), std::string("\0\x3c", 2));  // 1 in fp16
  EXPECT_EQ(blocks[2], 127);
  EXPECT_EQ(blocks[3], 1);  // halves go away from zero
  EXPECT_EQ(blocks[4], -1);
  EXPECT_EQ(blocks[5], -127);
  EXPECT_EQ(blocks[6], 0);
  EXPECT_EQ(blocks.substr(34), std::string(34, '\0'));  // a block of zeros
}

class GgufFiles : public testing::Test {
 protected:
  const TemporaryDirectory folder_;
  const fs::path file_ = folder_ / "a.gguf";
};

TEST_F(GgufFiles, AreBytesOfTheFormat) {
  write_gguf(file_, {{"n", uint32_t{7}}, {"l", std::vector<std::string>{"x"}}}, {{"t", {1, 2}, GgufType::kF32}},
             [](const GgufTensor&) {
               return at::ones({1, 2}, at::kFloat);
             });
  const auto number = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const auto text = [&](const std::string& value) { return number(uint64_t{value.size()}) + value; };
  std::string wanted = "GGUF" + number(uint32_t{3}) + number(uint64_t{1}) + number(uint64_t{2});
  wanted += text("n") + number(uint32_t{4}) + number(uint32_t{7});
  wanted += text("l") + number(uint32_t{9}) + number(uint32_t{8}) + number(uint64_t{1}) + text("x");
  wanted += text("t") + number(uint32_t{2}) + number(uint64_t{2}) + number(uint64_t{1});  // the fastest first
  wanted += number(uint32_t{0}) + number(uint64_t{0});
  wanted.resize((wanted.size() + 31) / 32 * 32, '\0');
  wanted += number(1.0f) + number(1.0f) + std::string(24, '\0');
  EXPECT_EQ(read_file(file_), wanted);
}

TEST_F(GgufFiles, NothingIsWrittenThatIsNotFinite) {
  const auto write = [&](double value, GgufType type) {
    return error_of<RunError>([&] {
      write_gguf(file_, {}, {{"t", {32}, type}}, [&](const GgufTensor&) { return at::full({32}, value, at::kFloat); });
    });
  };
  EXPECT_THAT(write(std::numeric_limits<double>::quiet_NaN(), GgufType::kF32), HasSubstr("not finite"));
  EXPECT_THAT(write(70000, GgufType::kF16), HasSubstr("not finite"));
  EXPECT_THAT(write(1e8, GgufType::kQ8_0), HasSubstr("not finite"));
  EXPECT_FALSE(fs::exists(file_));
}

class GgufExports : public testing::Test {
 protected:
  void save(const std::string& name, const model::TransformerConfig& config) const {
    model::save_model(folder_ / name, *model::varied_model(config, 5, at::kFloat));
  }
  ExportSummary run(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    return export_model({.model = folder_ / name, .out = folder_ / out, .format = "gguf", .dtype = dtype});
  }
  std::string refused(const std::string& name, const std::string& out, const std::string& dtype = "stored") const {
    return error_of([&] { run(name, out, dtype); });
  }
  const TemporaryDirectory folder_;
};

TEST_F(GgufExports, HaveTheTypeThatIsAskedFor) {
  save("llama", llama_for_gguf());
  save("gpt2", model::tiny_gpt2());
  for (const std::string name : {"llama", "gpt2"}) {
    const ExportSummary done = run(name, name + ".gguf");
    EXPECT_EQ(done.dtype, "F32");
    EXPECT_EQ(done.parameters, model::load_model(folder_ / name, {.pack = false})->parameters().size());
    EXPECT_EQ(run(name, name + "-16.gguf", "fp16").dtype, "F16");
    EXPECT_EQ(run(name, name + "-8.gguf", "q8_0").dtype, "Q8_0");
    EXPECT_LT(fs::file_size(folder_ / (name + "-16.gguf")), fs::file_size(folder_ / (name + ".gguf")));
  }
}

TEST_F(GgufExports, HoldTokensAndTheChatTemplate) {
  save("llama", model::tiny_llama());
  write_file_atomic(folder_ / "llama/tokenizer_config.json", R"({"chat_template": "{{ of_the_settings }}"})");
  const auto value = [&](const std::string& wanted) {
    for (const auto& [name, found] : gguf_tokenizer(folder_ / "llama", 260)) {
      if (name == wanted) return found;
    }
    return GgufValue(false);
  };
  EXPECT_EQ(value("tokenizer.ggml.model"), GgufValue(std::string("no_vocab")));
  write_json(folder_ / "llama/tokenizer.json", data::byte_level_json({"a b"}));
  EXPECT_EQ(value("tokenizer.ggml.model"), GgufValue(std::string("gpt2")));
  const auto tokens = std::get<std::vector<std::string>>(value("tokenizer.ggml.tokens"));
  ASSERT_EQ(tokens.size(), 260) << "filled up";
  EXPECT_EQ(tokens[256], "ab");
  EXPECT_EQ(value("tokenizer.chat_template"), GgufValue(std::string("{{ of_the_settings }}")));
  write_file_atomic(folder_ / "llama/chat_template.jinja", "{{ of_the_file }}");
  EXPECT_EQ(value("tokenizer.chat_template"), GgufValue(std::string("{{ of_the_file }}")));
  write_json(folder_ / "llama/tokenizer.json", data::byte_fallback_json({"a"}, {}));
  EXPECT_THAT(error_of([&] { value(""); }), HasSubstr("llama.cpp has no such tokenizer"));
  // A SentencePiece model beside the tokenizer.json that was made of it.
  data::train_tokenizer({"the cat sees the dog", "a dog sees a cat"}, {.vocabulary = 40, .exact_size = false},
                        folder_ / "llama/tokenizer.model");
  EXPECT_EQ(value("tokenizer.ggml.model"), GgufValue(std::string("t5")));
}

TEST_F(GgufExports, ScaledRotationBecomesFactors) {
  const at::Tensor factors = rope_factors(llama_for_gguf());
  EXPECT_EQ(factors.numel(), llama_for_gguf().head_width / 2);
  EXPECT_TRUE(factors.ge(0.999).all().item<bool>());
  EXPECT_NEAR(factors[-1].item<double>(), 8, 1e-4);  // the slowest pair turns 8 times as slowly
  EXPECT_FALSE(rope_factors(model::tiny_llama()).defined());
}

// Families like Llama: their architecture, whether rows of queries are reordered, and a tensor's name in layer 1.
TEST_F(GgufExports, RelativesOfLlamaHaveNamesOfTheirOwn) {
  struct Relative {
    std::string family, architecture;
    bool pairs;
    std::string tensor;
  };
  for (const Relative& one : {Relative{"mistral", "llama", true, "blk.1.attn_norm.weight"},
                              Relative{"granite", "granite", true, "blk.1.ffn_norm.weight"},
                              Relative{"qwen2", "qwen2", false, "blk.1.attn_q.bias"},
                              Relative{"qwen3", "qwen3", false, "blk.1.attn_k_norm.weight"},
                              Relative{"smollm3", "smollm3", true, "blk.1.ffn_gate.weight"},
                              Relative{"phi3", "phi3", false, "blk.1.attn_qkv.weight"},
                              Relative{"olmo2", "olmo2", false, "blk.1.post_ffw_norm.weight"},
                              Relative{"olmo2", "olmo2", false, "output.weight"}}) {
    model::TransformerConfig config = model::tiny_of(model::families().at(one.family));
    config.unrotated_layers.clear();  // of three layers llama.cpp's SmolLM3 rotates all
    Problems problems;
    check_gguf("model", config, problems);
    problems.throw_if_any();
    EXPECT_EQ(gguf_settings(config, "x", GgufType::kF32).front().second, GgufValue(one.architecture));
    bool found = false;
    for (const GgufTensor& tensor : gguf_tensors(config, GgufType::kF32)) {
      found = found || tensor.name == one.tensor;
      if (tensor.name != "blk.0.attn_q.weight") continue;
      EXPECT_EQ(tensor.rotated_heads > 0, one.pairs) << one.family;
    }
    EXPECT_TRUE(found) << one.family << ": " << one.tensor;
  }
}

TEST_F(GgufExports, PreTokenizersAreKnownByTheirSteps) {
  const std::string llama3 = R"({"type": "Split", "behavior": "Removed", "invert": true, "pattern": {"Regex": )" +
                             nlohmann::json(std::string(data::kLlama3Pattern)).dump() + "}}, ";
  const std::string digits = R"({"type": "Digits", "individual_digits": true}, )";
  const std::string words = R"({"type": "ByteLevel", "add_prefix_space": false})";
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  for (const auto& [steps, ignore_merges, name] :
       std::vector<std::tuple<std::string, bool, std::string>>{{llama3 + bytes, true, "llama-bpe"},
                                                               {llama3 + bytes, false, "dbrx"},
                                                               {digits + words, false, "smollm"},
                                                               {words, true, "refused"},
                                                               {digits + llama3 + bytes, true, "refused"}}) {
    nlohmann::json json = data::byte_level_json({"a b"});
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::parse("[" + steps + "]")}};
    json["model"]["ignore_merges"] = ignore_merges;
    write_json(folder_ / "tokenizer.json", json);
    GgufValues values = {{"", std::string("refused")}, {"", std::string("refused")}};
    const std::string error = error_of([&] { values = gguf_tokenizer(folder_.path(), 260); });
    EXPECT_EQ(values.at(1).second, GgufValue(name)) << error;
  }
}

TEST_F(GgufExports, RefuseWhatTheyCannotHold) {
  model::TransformerConfig pausing = model::tiny_of(model::families().at("smollm3"));
  pausing.feed_forward_bias = true;
  pausing.rotary.scaling = model::RotaryScaling::kYarn;
  pausing.rotary.factor = 4;
  Problems problems;
  check_gguf("model", pausing, problems);
  EXPECT_THAT(error_of([&] { problems.throw_if_any(); }),
              AllOf(HasSubstr("no_rope_layers"), HasSubstr("mlp_bias"), HasSubstr("attention factor")));
  save("llama", model::tiny_llama());
  save("neox", model::tiny_neox());
  EXPECT_THAT(refused("neox", "out.gguf"), HasSubstr("GGUF is not written for this family"));
  write_file_atomic(folder_ / "out.gguf", "kept");
  EXPECT_THAT(refused("llama", "out.gguf"), HasSubstr("exists already"));
  EXPECT_EQ(read_file(folder_ / "out.gguf"), "kept");
  const auto directory = error_of([&] {
    export_model({.model = folder_ / "llama", .out = folder_ / "directory", .format = "hf", .dtype = "q8_0"});
  });
  EXPECT_THAT(directory, HasSubstr("q8_0"));
}

}  // namespace
}  // namespace draftsmith::recipes
