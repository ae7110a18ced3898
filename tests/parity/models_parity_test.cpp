// Every family computes what Transformers computes: logits, cached steps, gradients, greedy outputs, and model
// directories both ways.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/write_weights.h"
#include "tests/parity/model_comparison.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNewTokens = 14;  // NEW_TOKENS of tools/parity_models.py

using Names = std::vector<std::string>;

const Names kT5{"t5_v1_0", "t5_v1_1", "t5_tied_unscaled", "mt5"};
const Names kSeq2Seq{"umt5", "marian", "m2m_100", "bart", "mbart", "pegasus"};
const Names kDecoderOnly{
    "llama3",   "llama_linear",    "llama_yarn",      "llama_dynamic", "gpt_neox_yarn", "gpt2",
    "gpt_neox", "gpt_neox_serial", "bloom",           "mistral",       "qwen2",         "qwen3",
    "smollm3",  "granite",         "olmo2",           "phi3",          "opt",           "opt_plain",
    "gemma2",   "gemma3",          "mistral_windows", "phi3_windows"};

const TransformersReference& made_reference() {
  return TransformersReference::of("parity_models.py");
}

// Compares logits of whole sequences, and of cached steps with rollbacks. Prints the figures of
// docs/reference/models.md.
void expect_equal_logits(const Names& names) {
  const TransformersReference& reference = made_reference();
  for (const std::string& name : names) {
    const Reference batch = reference.batch(name);
    for (const bool pack : {false, true}) {
      const auto model = load(reference.directory(name), pack);
      const double whole = logits_difference(forward_logits(*model, batch), batch);
      const double steps = steps_difference(*model, batch);
      fmt::print("{}{}: logits {:.0e}, cached steps {:.0e}\n", name, pack ? ", packed" : "", whole, steps);
      EXPECT_LT(std::max(whole, steps), kLogitsTolerance) << name << pack;
    }
  }
}

void expect_equal_gradients(const Names& names) {
  const TransformersReference& reference = made_reference();
  for (const std::string& name : names) {
    expect_equal_gradients(name, *load(reference.directory(name), false), reference.batch(name));
  }
}

// Compares greedy outputs for every batch size.
void expect_equal_outputs(const Names& names) {
  const TransformersReference& reference = made_reference();
  for (const std::string& name : names) {
    const auto model = load(reference.directory(name), true);
    const GreedyReference wanted = reference.greedy(name);
    ASSERT_GE(wanted.sources.size(), 50);
    for (const int64_t batch_size : {1, 25}) {
      EXPECT_EQ(greedy_outputs(*model, wanted.sources, kNewTokens, batch_size), wanted.outputs)
          << name << ", batch " << batch_size;
    }
    size_t ended = 0;
    for (const auto& output : wanted.outputs) ended += output.back() == 1 ? 1 : 0;
    EXPECT_GT(ended, 0) << name << ": no output ends before the limit, so nothing was learnt about EOS";
    EXPECT_LT(ended, wanted.outputs.size()) << name;
  }
}

// Saves models and loads them again; Transformers loads them and generates the same.
void expect_equal_when_saved(const Names& names) {
  const TransformersReference& reference = made_reference();
  const fs::path saved = reference.root() / "saved";
  for (const std::string& name : names) {
    const auto model = load(reference.directory(name), false);
    SaveOptions options;
    if (name == "t5_v1_0" || name == "gpt2") options.shard_bytes = 8'000;
    if (name == "t5_v1_0") {
      options.tokenizer = reference.root() / "spiece.model";
      save_model(saved / "t5_v1_0-bf16", *model, {.dtype = at::kBFloat16, .tokenizer = {}, .generation = {}});
      save_model(saved / "t5_v1_0-fp16", *model, {.dtype = at::kHalf, .tokenizer = {}, .generation = {}});
    }
    save_model(saved / name, *model, options);
    const auto again = load(saved / name, false);
    for (const auto& [parameter, tensor] : model->parameters()) {
      EXPECT_TRUE(at::equal(tensor, again->parameters().at(parameter))) << name << ": " << parameter;
    }
  }
  EXPECT_EQ(reference.check_saved(), "");
}

// Models of one kind.
class FamilyParity : public NeedsTransformers, public testing::WithParamInterface<Names> {};

TEST_P(FamilyParity, LogitsAndGradientsAreEqual) {
  expect_equal_logits(GetParam());
  expect_equal_gradients(GetParam());
}

TEST_P(FamilyParity, GreedyOutputsAreIdentical) {
  expect_equal_outputs(GetParam());
}

TEST_P(FamilyParity, WhatWeSaveLoadsThereAndGeneratesTheSame) {
  expect_equal_when_saved(GetParam());
}

INSTANTIATE_TEST_SUITE_P(T5, FamilyParity, testing::Values(kT5));
INSTANTIATE_TEST_SUITE_P(Seq2Seq, FamilyParity, testing::Values(kSeq2Seq));
INSTANTIATE_TEST_SUITE_P(DecoderOnly, FamilyParity, testing::Values(kDecoderOnly));

class T5Parity : public NeedsTransformers {
 protected:
  static const TransformersReference& reference() { return made_reference(); }
};
using DecoderOnlyParity = T5Parity;

// Transformers 4 wrote no scale_decoder_outputs: an untied head meant an unscaled output.
TEST_F(T5Parity, ConfigurationsOfOlderVersionsMeanTheSame) {
  const TemporaryDirectory copy;
  fs::copy(reference().directory("t5_v1_1"), copy.path(), fs::copy_options::recursive);
  auto config = load_json(copy / "config.json");
  for (const char* key : {"scale_decoder_outputs", "is_gated_act", "dense_act_fn", "architectures"}) {
    ASSERT_EQ(config.erase(key), 1) << key;
  }
  config["tie_word_embeddings"] = false;
  write_json(copy / "config.json", config);
  const auto model = load(copy.path(), false);
  const Reference batch = reference().batch("t5_v1_1");
  EXPECT_LT(logits_difference(forward_logits(*model, batch), batch), kLogitsTolerance);
}

TEST_F(T5Parity, HalfPrecisionDirectoriesLoad) {
  for (const auto& [name, dtype] : {std::pair{"t5_bf16", at::kBFloat16}, std::pair{"t5_fp16", at::kHalf}}) {
    const Reference batch = reference().batch(name);
    const auto widened = load(reference().directory(name), false);
    EXPECT_LT(logits_difference(forward_logits(*widened, batch), batch), kLogitsTolerance) << name;
    const auto plain = load(reference().directory(name), false, dtype);
    EXPECT_EQ(plain->parameters().at("embedding.weight").scalar_type(), dtype);
    const bool fp16 = dtype == at::kHalf;
    EXPECT_EQ(plain->parameters().at("decoder.0.feed_forward.down.weight").scalar_type(), fp16 ? at::kFloat : dtype);
    const auto narrow = load(reference().directory(name), true, dtype);
    EXPECT_EQ(narrow->info().dtype, fp16 ? dtype : at::kFloat);  // bf16 is the type of weights alone
    // bf16 keeps 8 bits of a number: a few hundredths after five layers.
    EXPECT_LT(steps_difference(*narrow, batch), fp16 ? 0.02 : 0.15) << name;
  }
}

TEST_F(DecoderOnlyParity, CachedStepsInFloat64AndHalfTypesAreNear) {
  for (const std::string& name : kDecoderOnly) {
    const Reference batch = reference().batch(name);
    EXPECT_LT(steps_difference(*load(reference().directory(name), true, at::kDouble), batch), kLogitsTolerance);
    EXPECT_LT(steps_difference(*load(reference().directory(name), true, at::kBFloat16), batch), 0.15) << name;
  }
}

// GPT-2 and BLOOM checkpoints of the Hub hold the base model alone, without "transformer." before its names.
TEST_F(DecoderOnlyParity, NamesWithoutPrefixAreRead) {
  for (const std::string name : {"gpt2", "bloom"}) {
    const fs::path directory = reference().root() / "without_prefix" / name;
    save_model(directory, *load(reference().directory(name), false));
    const SafetensorsFile file(directory / "model.safetensors");
    std::vector<TensorToStore> tensors;
    for (const auto& [stored, entry] : file.tensors()) {
      tensors.push_back(
          {stored.substr(std::string("transformer.").size()), file.stored(stored).to(at::kFloat), at::kFloat});
    }
    fs::remove(directory / "model.safetensors");
    write_safetensors(directory / "model.safetensors", std::move(tensors));
    const Reference batch = reference().batch(name);
    EXPECT_LT(logits_difference(forward_logits(*load(directory, false), batch), batch), kLogitsTolerance);
  }
}

TEST_F(DecoderOnlyParity, PickledWeightsAreRead) {
  const Reference batch = reference().batch("gpt2");
  const auto model = load(reference().directory("gpt2_pickled"), false);
  EXPECT_LT(logits_difference(forward_logits(*model, batch), batch), kLogitsTolerance);
}

// Generation settings that change logits; for a decoder-only model the "encoder's" input is the prompt.
TEST_F(DecoderOnlyParity, ProcessorsGiveTheSameOutputs) {
  ASSERT_EQ(reference().run("processors"), "");
  for (const auto& record : load_json(reference().root() / "processors.json")) {
    const auto model = load(reference().directory(record.at("model").get<std::string>()), true);
    const auto settings = settings_of(record.at("settings"), *model);
    EXPECT_EQ(greedy_outputs(*model, record.at("sources").get<Lists>(), kNewTokens, 10, settings),
              record.at("outputs").get<Lists>())
        << record.at("model") << record.at("settings");
    EXPECT_GT(record.at("changed").get<int64_t>(), 0) << record.at("settings") << " changes nothing";
  }
}

}  // namespace
}  // namespace draftsmith::model
