// Llama, GPT-2, GPT-NeoX and BLOOM compute what Transformers computes: logits, cached steps, gradients, greedy outputs,
// and model directories both ways.
#include <memory>

#include <gtest/gtest.h>

#include "base/json.h"
#include "infer/generator.h"
#include "model/files/checkpoint.h"
#include "tests/parity/model_comparison.h"
#include "tests/support/paths.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kDecoderOnlyModels = {"llama3",   "llama_linear",    "gpt2",
                                                     "gpt_neox", "gpt_neox_serial", "bloom"};

// What greedy decoding puts out, EOS included, in batches of prompts of different lengths.
std::vector<std::vector<int64_t>> greedy_continuations(TransformerModel& model, const GreedyReference& wanted,
                                                       int64_t new_tokens, int64_t batch_size) {
  infer::DecodeOptions options;
  options.method = "greedy";
  options.max_new_tokens = new_tokens;
  options.batch_size = batch_size;
  infer::GenerationModels models;
  models.target = &model;
  infer::Generator generator(std::move(models), options);
  std::vector<std::vector<int64_t>> outputs;
  for (auto& result : generator.generate(wanted.sources)) outputs.push_back(std::move(result.ids));
  return outputs;
}

class DecoderOnlyParity : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (TransformersReference::available()) {
      reference_ = std::make_unique<TransformersReference>("parity_decoder_only.py");
    }
  }
  static void TearDownTestSuite() { reference_.reset(); }

  void SetUp() override {
    if (!reference_) {
      GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
    }
  }

  static inline std::unique_ptr<TransformersReference> reference_;
};

TEST_F(DecoderOnlyParity, LogitsOfWholeSequencesAreEqual) {
  for (const std::string& name : kDecoderOnlyModels) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      const Reference reference = reference_->batch(name);
      EXPECT_LT(logits_difference(forward_logits(*model, reference), reference), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(DecoderOnlyParity, LogitsOfCachedStepsWithRollbacksAreEqual) {
  for (const std::string& name : kDecoderOnlyModels) {
    for (const bool pack : {false, true}) {
      const auto model = load(reference_->directory(name), pack);
      EXPECT_LT(steps_difference(*model, reference_->batch(name)), kLogitsTolerance) << name << pack;
    }
  }
}

TEST_F(DecoderOnlyParity, CachedStepsInFloat64AndHalfTypesAreNear) {
  for (const std::string& name : kDecoderOnlyModels) {
    const Reference reference = reference_->batch(name);
    EXPECT_LT(steps_difference(*load(reference_->directory(name), true, at::kDouble), reference), kLogitsTolerance);
    EXPECT_LT(steps_difference(*load(reference_->directory(name), true, at::kBFloat16), reference), 0.15) << name;
  }
}

TEST_F(DecoderOnlyParity, GradientsOfEveryParameterAreEqual) {
  for (const std::string& name : kDecoderOnlyModels) {
    expect_equal_gradients(name, *load(reference_->directory(name), false), reference_->batch(name));
  }
}

TEST_F(DecoderOnlyParity, GreedyOutputsAreIdenticalForEveryBatchSize) {
  for (const std::string& name : kDecoderOnlyModels) {
    const auto model = load(reference_->directory(name), true);
    const GreedyReference wanted = reference_->greedy(name);
    ASSERT_EQ(wanted.sources.size(), 200);
    for (const int64_t batch_size : {1, 25}) {
      EXPECT_EQ(greedy_continuations(*model, wanted, 14, batch_size), wanted.outputs)
          << name << ", batch " << batch_size;
    }
    size_t ended = 0;
    for (const auto& output : wanted.outputs) ended += output.back() == 1 ? 1 : 0;
    EXPECT_GT(ended, 0) << name << ": no output ends before the limit, so nothing was learnt about EOS";
    EXPECT_LT(ended, wanted.outputs.size()) << name;
  }
}

TEST_F(DecoderOnlyParity, WhatWeSaveLoadsThereAndGeneratesTheSame) {
  const fs::path saved = reference_->root() / "saved";
  for (const std::string& name : kDecoderOnlyModels) {
    const auto model = load(reference_->directory(name), false);
    save_model(
        saved / name, *model,
        {.shard_bytes = name == "gpt2" ? uint64_t{9'000} : uint64_t{1'000'000'000}, .tokenizer = {}, .generation = {}});
    const auto again = load(saved / name, false);
    for (const auto& [parameter, tensor] : model->parameters()) {
      EXPECT_TRUE(at::equal(tensor, again->parameters().at(parameter))) << name << ": " << parameter;
    }
  }
  EXPECT_EQ(reference_->check_saved(), "");
}

// GPT-2 and BLOOM checkpoints of the Hub hold the base model alone, without "transformer." before its names.
TEST_F(DecoderOnlyParity, NamesWithoutPrefixAreRead) {
  const fs::path base = reference_->root() / "without_prefix";
  fs::create_directories(base);
  for (const std::string name : {"gpt2", "bloom"}) {
    const auto model = load(reference_->directory(name), false);
    const fs::path directory = base / name;
    save_model(directory, *model);
    const SafetensorsFile file(directory / "model.safetensors");
    std::vector<TensorToStore> tensors;
    for (const auto& [stored, entry] : file.tensors()) {
      tensors.push_back({stored.substr(std::string("transformer.").size()), file.read(stored, at::kFloat), at::kFloat});
    }
    fs::remove(directory / "model.safetensors");
    write_safetensors(directory / "model.safetensors", std::move(tensors));
    const Reference reference = reference_->batch(name);
    EXPECT_LT(logits_difference(forward_logits(*load(directory, false), reference), reference), kLogitsTolerance);
  }
}

TEST_F(DecoderOnlyParity, PickledWeightsAreRead) {
  const Reference reference = reference_->batch("gpt2");
  const auto model = load(reference_->directory("gpt2_pickled"), false);
  EXPECT_LT(logits_difference(forward_logits(*model, reference), reference), kLogitsTolerance);
}

// Generation settings that change logits; for a decoder-only model the "encoder's" input is the prompt.
TEST_F(DecoderOnlyParity, ProcessorsGiveTheSameOutputs) {
  ASSERT_EQ(reference_->run("processors"), "");
  using Lists = std::vector<std::vector<int64_t>>;
  for (const auto& record : load_json(reference_->root() / "processors.json")) {
    const auto model = load(reference_->directory(record.at("model").get<std::string>()), true);
    const TemporaryDirectory settings;
    write_file_atomic(settings / "generation_config.json", record.at("settings").dump());
    Problems problems;
    infer::GenerationModels models;
    models.target = model.get();
    models.generation = read_generation_config(settings.path(), {}, model->config(), problems);
    problems.throw_if_any();
    infer::DecodeOptions options;
    options.max_new_tokens = 14;
    options.batch_size = 10;
    Lists outputs;
    const auto sources = record.at("sources").get<Lists>();
    for (auto& result : infer::Generator(models, options).generate(sources)) outputs.push_back(std::move(result.ids));
    EXPECT_EQ(outputs, record.at("outputs").get<Lists>()) << record.at("model") << record.at("settings");
    EXPECT_GT(record.at("changed").get<int64_t>(), 0) << record.at("settings") << " changes nothing";
  }
}

// A real trained model: greedy continuations of 100 beginnings of TinyStories.
TEST_F(DecoderOnlyParity, ATrainedModelTellsTheSameStories) {
  const fs::path data = draftsmith::test::data_dir();
  const fs::path directory = data / "models/stories260k_hf";
  fs::path text;
  if (fs::exists(data / "tinystories")) {
    for (const auto& entry : fs::directory_iterator(data / "tinystories")) {
      if (text.empty() || fs::file_size(entry.path()) > fs::file_size(text)) text = entry.path();
    }
  }
  if (!fs::exists(directory) || text.empty()) GTEST_SKIP() << "no " << directory;
  ASSERT_EQ(reference_->run("stories", "'" + directory.string() + "' '" + text.string() + "'"), "");
  const auto json = load_json(reference_->root() / "stories.json");
  const GreedyReference wanted{json.at("sources").get<std::vector<std::vector<int64_t>>>(),
                               json.at("outputs").get<std::vector<std::vector<int64_t>>>()};
  ASSERT_EQ(wanted.sources.size(), 100);
  const auto model = load(directory, true);
  for (const int64_t batch_size : {1, 16}) {
    EXPECT_EQ(greedy_continuations(*model, wanted, 60, batch_size), wanted.outputs) << batch_size;
  }
}

}  // namespace
}  // namespace draftsmith::model
