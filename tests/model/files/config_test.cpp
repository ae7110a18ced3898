// Readers of decoder-only families and of generation settings: what their keys mean, and what they refuse. What the
// models compute is compared with Transformers in tests/parity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/generation_config.h"
#include "model/layers/rotary.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 31},
          {"hidden_size", 12},
          {"intermediate_size", 20},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 3},
          {"head_dim", 4},
          {"max_position_embeddings", 40}};
}

json gpt2() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", 31},
          {"n_embd", 12},
          {"n_head", 3},
          {"n_layer", 2},
          {"n_positions", 40}};
}

json gpt_neox() {
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"vocab_size", 31},
          {"hidden_size", 16},
          {"intermediate_size", 20},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"rotary_pct", 0.25},
          {"max_position_embeddings", 40}};
}

json bloom() {
  return {
      {"architectures", {"BloomForCausalLM"}}, {"vocab_size", 31}, {"hidden_size", 12}, {"n_head", 3}, {"n_layer", 2}};
}

class Families : public testing::Test {
 protected:
  TransformerConfig read(json config, const json& changes = json::object()) const {
    config.update(changes);
    write_json(folder_ / "config.json", nlohmann::ordered_json(config));
    return load_config(folder_.path());
  }
  std::string error(const json& config, const json& changes) const {
    return error_of([&] { read(config, changes); });
  }

  TemporaryDirectory folder_;
};

TEST_F(Families, RotaryScalingIsReadInBothForms) {
  EXPECT_EQ(read(llama()).rotary.base, 10000.0);
  EXPECT_EQ(read(llama(), {{"rope_theta", 500000.0}}).rotary.base, 500000.0);
  const auto old_linear = read(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(old_linear.rotary.scaling, RotaryScaling::kLinear);
  EXPECT_EQ(old_linear.rotary.factor, 2.0);
  const auto llama3 = read(llama(), {{"rope_parameters",
                                      {{"rope_type", "llama3"},
                                       {"rope_theta", 7.0},
                                       {"factor", 8.0},
                                       {"low_freq_factor", 1.0},
                                       {"high_freq_factor", 4.0},
                                       {"original_max_position_embeddings", 16}}}});
  EXPECT_EQ(llama3.rotary.scaling, RotaryScaling::kLlama3);
  EXPECT_EQ(llama3.rotary.base, 7.0);
  EXPECT_EQ(llama3.rotary.original_positions, 16);
  EXPECT_THAT(error(llama(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}),
              AllOf(HasSubstr("rope_type"), HasSubstr("llama3")));
}

TEST_F(Families, ShapesThatDoNotFitAreNamed) {
  EXPECT_THAT(error(llama(), {{"num_key_value_heads", 4}}),
              AllOf(HasSubstr("num_key_value_heads"), HasSubstr("divisor of 6")));
  EXPECT_THAT(error(llama(), {{"head_dim", 5}}), HasSubstr("head_dim"));
  EXPECT_THAT(error(gpt2(), {{"n_head", 5}}), AllOf(HasSubstr("n_head"), HasSubstr("divisor of 12")));
  EXPECT_THAT(error(gpt_neox(), {{"num_attention_heads", 3}}), HasSubstr("num_attention_heads"));
  EXPECT_THAT(error(gpt_neox(), {{"rotary_pct", 0.1}}), HasSubstr("rotary_pct"));
  EXPECT_THAT(error(bloom(), {{"n_head", 5}}), HasSubstr("n_head"));
}

TEST_F(Families, VariantsThatWouldGiveOtherNumbersAreRefused) {
  EXPECT_THAT(error(gpt2(), {{"scale_attn_by_inverse_layer_idx", true}}), HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(error(gpt2(), {{"add_cross_attention", true}}), HasSubstr("add_cross_attention"));
  EXPECT_THAT(error(bloom(), {{"apply_residual_connection_post_layernorm", true}}), HasSubstr("apply_residual"));
  EXPECT_THAT(error(llama(), {{"hidden_act", "mish"}}), HasSubstr("hidden_act"));
  EXPECT_THAT(error(llama(), {{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
  EXPECT_THAT(error(llama(), {{"architectures", {"MistralForCausalLM"}}}),
              AllOf(HasSubstr("MistralForCausalLM"), HasSubstr("LlamaForCausalLM"), HasSubstr("BloomForCausalLM")));
}

TEST_F(Families, TokenIdsHaveTheFamiliesDefaults) {
  EXPECT_EQ(read(llama()).eos, std::vector<int64_t>{2});
  EXPECT_EQ(read(llama()).bos, 1);
  EXPECT_EQ(read(llama(), {{"eos_token_id", {3, 4}}}).eos, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(read(gpt2(), {{"bos_token_id", 30}}).decoder_start, 30);
  EXPECT_EQ(read(bloom()).pad, 2);
  EXPECT_THAT(error(llama(), {{"bos_token_id", 31}}), HasSubstr("bos_token_id"));
}

// What is written is read back as the same model, its parameters joined and split again.
TEST_F(Families, SavedModelsAreReadBack) {
  for (const json& config : {llama(), gpt2(), gpt_neox(), bloom()}) {
    const TransformerConfig wanted = read(config);
    TransformerModel model(wanted, 3);
    const TemporaryDirectory folder;
    save_model(folder / "model", model);
    const auto again = load_model(folder / "model", {.pack = false});
    EXPECT_EQ(again->config().family, wanted.family);
    EXPECT_EQ(again->config().key_value_heads(), wanted.key_value_heads());
    EXPECT_EQ(again->config().rotary.width, wanted.rotary.width);
    EXPECT_EQ(again->config().bos, wanted.bos);
    ASSERT_EQ(again->parameters().size(), model.parameters().size()) << wanted.family;
    for (const auto& [name, tensor] : model.parameters()) {
      EXPECT_TRUE(tensor.equal(again->parameters().at(name))) << wanted.family << ": " << name;
    }
  }
}

TEST_F(Families, ATensorThatHoldsJoinedParametersIsCheckedAsAWhole) {
  TransformerModel model(read(gpt_neox()), 3);
  save_model(folder_ / "model", model);
  const auto config = load_json(folder_ / "model/config.json");
  const auto file = folder_ / "model/model.safetensors";
  std::vector<TensorToStore> tensors;
  {
    const SafetensorsFile stored(file);
    for (const auto& [name, entry] : stored.tensors()) {
      const bool cut = name == "gpt_neox.layers.1.attention.query_key_value.weight";
      const at::Tensor whole = stored.read(name, at::kFloat);
      tensors.push_back({name, cut ? whole.narrow(0, 0, 40).clone() : whole, at::kFloat});
    }
  }
  std::filesystem::remove(file);
  write_safetensors(file, std::move(tensors));
  EXPECT_THAT(error_of([&] { load_model(folder_ / "model"); }),
              AllOf(HasSubstr("gpt_neox.layers.1.attention.query_key_value.weight"), HasSubstr("[48, 16]"),
                    HasSubstr("[40, 16]")));
}

// Frequencies by hand: linear divides all; llama3 keeps short waves, divides long ones, and interpolates between.
TEST(Rotary, FrequenciesAreStretched) {
  RotaryConfig config{.width = 4, .base = 100.0};
  EXPECT_TRUE(at::allclose(rotary_frequencies(config), at::tensor({1.0F, 0.1F})));
  config.scaling = RotaryScaling::kLinear;
  config.factor = 4;
  EXPECT_TRUE(at::allclose(rotary_frequencies(config), at::tensor({0.25F, 0.025F})));
  config.scaling = RotaryScaling::kLlama3;
  config.low_frequency_factor = 1;
  config.high_frequency_factor = 4;
  config.original_positions = 40;  // waves 6.3 (shorter than 10: kept) and 62.8 (longer than 40: divided)
  EXPECT_TRUE(at::allclose(rotary_frequencies(config), at::tensor({1.0F, 0.025F})));
  config.original_positions = 100;  // 62.8 lies between 25 and 100
  const double share = (100 / 62.831853 - 1) / 3;
  EXPECT_NEAR(rotary_frequencies(config)[1].item<double>(), (1 - share) * 0.025 + share * 0.1, 1e-6);
}

class GenerationSettings : public testing::Test {
 protected:
  GenerationSettings() {
    config_.vocabulary = 100;
    config_.eos = {1};
  }

  // Of a directory with this generation_config.json; throws what a loader would.
  GenerationConfig read(const json& settings) {
    write_json(directory_ / "generation_config.json", settings);
    return read_without_file({}, true);
  }

  // With these keys in config.json alone.
  GenerationConfig read_without_file(const json& config_json, bool keep_file = false) {
    if (!keep_file) {
      std::filesystem::remove(directory_ / "generation_config.json");
    }
    Problems problems;
    GenerationConfig generation = read_generation_config(directory_.path(), config_json, config_, problems);
    problems.throw_if_any();
    return generation;
  }

  const TemporaryDirectory directory_;
  TransformerConfig config_;
};

TEST_F(GenerationSettings, EverySupportedKeyIsReadAndWrittenBack) {
  const json settings = {{"pad_token_id", 3},
                         {"eos_token_id", {1, 7}},
                         {"decoder_start_token_id", 4},
                         {"bos_token_id", 5},
                         {"encoder_repetition_penalty", 1.5},
                         {"repetition_penalty", 1.2},
                         {"no_repeat_ngram_size", 3},
                         {"encoder_no_repeat_ngram_size", 4},
                         {"bad_words_ids", {{8}, {9, 10}}},
                         {"min_length", 2},
                         {"min_new_tokens", 1},
                         {"forced_bos_token_id", 11},
                         {"forced_eos_token_id", 1},
                         {"suppress_tokens", {12, 13}},
                         {"begin_suppress_tokens", {14}},
                         {"max_length", 50},
                         {"max_new_tokens", 40},
                         {"do_sample", true},
                         {"temperature", 0.5},
                         {"top_k", 20},
                         {"top_p", 0.75},
                         {"min_p", 0.1},
                         {"stop_strings", {"a", "\n\n"}}};
  const GenerationConfig generation = read(settings);
  EXPECT_THAT(generation.eos_ids, ElementsAre(1, 7));
  EXPECT_THAT(generation.bad_words, ElementsAre(ElementsAre(8), ElementsAre(9, 10)));
  EXPECT_EQ(generation.forced_bos, 11);
  EXPECT_TRUE(generation.has_processors());
  EXPECT_TRUE(generation.unsupported.empty());
  EXPECT_EQ(json(to_json(generation)), settings);
}

TEST_F(GenerationSettings, WhatIsNotImplementedIsNamed) {
  const GenerationConfig generation = read({{"num_beam_groups", 4},
                                            {"typical_p", 0.9},
                                            {"guidance_scale", 2},
                                            {"sequence_bias", {{{1}, -1.0}}},
                                            {"exponential_decay_length_penalty", {5, 1.1}},
                                            {"a_key_of_tomorrow", true}});
  EXPECT_EQ(generation.unsupported.size(), 6);
  EXPECT_THAT(
      error_of([&] { require_supported(generation, "dir"); }),
      AllOf(HasSubstr("num_beam_groups"), HasSubstr("typical_p"), HasSubstr("guidance_scale"),
            HasSubstr("sequence_bias"), HasSubstr("exponential_decay_length_penalty"), HasSubstr("a_key_of_tomorrow")));
  EXPECT_EQ(to_json(generation)["num_beam_groups"], 4) << "saving a model keeps settings that we do not implement";
}

TEST_F(GenerationSettings, BeamSearchIsReadAndWritten) {
  const GenerationConfig generation = read({{"num_beams", 4}, {"length_penalty", 0.6}, {"early_stopping", true}});
  EXPECT_NO_THROW(require_supported(generation, "dir"));
  EXPECT_EQ(generation.num_beams, 4);
  EXPECT_EQ(generation.length_penalty, 0.6);
  EXPECT_EQ(generation.early_stopping, "true");
  EXPECT_EQ(to_json(generation)["num_beams"], 4);
  EXPECT_EQ(to_json(generation)["early_stopping"], true);
  EXPECT_EQ(to_json(read({{"early_stopping", "never"}}))["early_stopping"], "never");
  EXPECT_FALSE(to_json(read({{"early_stopping", false}})).contains("early_stopping"));
  EXPECT_THAT(error_of([&] {
                read({{"early_stopping", "soon"}, {"num_beams", 0}});
              }),
              AllOf(HasSubstr("early_stopping"), HasSubstr("num_beams")));
}

TEST_F(GenerationSettings, NeutralAndHarmlessValuesAreSupported) {
  const GenerationConfig generation = read({{"num_beams", 1},
                                            {"typical_p", 1.0},
                                            {"guidance_scale", nullptr},
                                            {"stop_strings", json::array()},
                                            {"sequence_bias", json::object()},
                                            {"penalty_alpha", 0},
                                            {"renormalize_logits", false},
                                            {"_from_model_config", true},
                                            {"transformers_version", "5.23.0"},
                                            {"use_cache", true},
                                            {"length_penalty", 2.0}});
  EXPECT_NO_THROW(require_supported(generation, "dir"));
}

TEST_F(GenerationSettings, OldModelsKeepThemInConfigJson) {
  const GenerationConfig generation = read_without_file({{"d_model", 512},
                                                         {"num_beam_groups", 2},
                                                         {"num_beams", 3},
                                                         {"no_repeat_ngram_size", 3},
                                                         {"task_specific_params", {{"num_beams", 4}}}});
  EXPECT_EQ(generation.no_repeat_ngram_size, 3);
  ASSERT_EQ(generation.unsupported.size(), 1);
  EXPECT_EQ(generation.unsupported.front().name, "num_beam_groups");
  EXPECT_EQ(generation.num_beams, 3);
}

TEST_F(GenerationSettings, IdsOutsideTheVocabularyAndBadValuesAreAllReported) {
  EXPECT_THAT(error_of([&] {
                read({{"eos_token_id", 100},
                      {"suppress_tokens", {3, -1}},
                      {"bad_words_ids", {{5}, json::array()}},
                      {"repetition_penalty", 0},
                      {"top_p", 1.5},
                      {"min_p", -0.1},
                      {"stop_strings", {"a", ""}},
                      {"max_length", int64_t{1} << 40},
                      {"max_new_tokens", 0}});
              }),
              AllOf(HasSubstr("eos_token_id"), HasSubstr("suppress_tokens"), HasSubstr("bad_words_ids"),
                    HasSubstr("repetition_penalty"), HasSubstr("top_p"), HasSubstr("max_new_tokens"),
                    HasSubstr("max_length"), HasSubstr("min_p"), HasSubstr("stop_strings")));
}

}  // namespace
}  // namespace draftsmith::model
