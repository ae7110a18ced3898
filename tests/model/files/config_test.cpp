// Readers of decoder-only families and of generation settings: what their keys mean, and what they refuse. What the
// models compute is compared with Transformers in tests/parity.
#include <cmath>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/generation_config.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "model/layers/rotary.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;

json llama() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 31, "hidden_size": 12,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4,
    "max_position_embeddings": 40})");
}

json gpt2() {
  return json::parse(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 31, "n_embd": 12, "n_head": 3,
    "n_layer": 2, "n_positions": 40})");
}

json gpt_neox() {
  return json::parse(R"({"architectures": ["GPTNeoXForCausalLM"], "vocab_size": 31, "hidden_size": 16,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "rotary_pct": 0.25,
    "max_position_embeddings": 40})");
}

json bloom() {
  return json::parse(R"({"architectures": ["BloomForCausalLM"], "vocab_size": 31, "hidden_size": 12, "n_head": 3,
    "n_layer": 2})");
}

// A family like Llama, of the same sizes.
json like_llama(const std::string& architecture, const json& changes = json::object()) {
  json config = llama();
  config["architectures"] = {architecture};
  config.update(changes);
  return config;
}

json opt() {
  return json::parse(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 31, "hidden_size": 12, "ffn_dim": 20,
    "num_attention_heads": 3, "num_hidden_layers": 2, "max_position_embeddings": 40})");
}

using Families = ReadsConfigs;

// Frequencies and the factor on attention as Transformers 5.23 computes them from these keys.
TEST_F(Families, RotaryPositionsAreThoseOfTransformersInEverySpelling) {
  json wide = llama();
  wide["head_dim"] = 8;
  const json kNeox = gpt_neox();
  const std::vector<float> k500 = {1, 0.211474F, 0.0447214F, 0.00945742F};
  const std::vector<float> kLinear = {0.5F, 0.105737F, 0.0223607F, 0.00472871F};
  const std::vector<float> kLlama3 = {0.576056F, 0.0264343F, 0.00559017F, 0.00118218F};
  const std::vector<float> kYarn = {1, 0.0528686F, 0.0111803F, 0.00236435F};
  struct Spelling {
    json config;
    const char* keys;
    std::vector<float> frequencies;
    double attention = 1.0;
  };
  for (const Spelling& one : std::vector<Spelling>{
           {wide, R"({})", {1, 0.1F, 0.01F, 0.001F}},
           {wide, R"({"rope_theta": 500})", k500},
           {wide, R"({"rope_theta": 7, "rope_parameters": {"rope_theta": 500}, "rope_scaling": {}})", k500},
           {wide, R"({"rope_theta": 500, "rope_parameters": {"full_attention": {"rope_theta": 500}}})", k500},
           {wide, R"({"rope_theta": 500, "rope_scaling": {"type": "dynamic", "factor": 4}})", k500},
           {wide, R"({"rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 2}})", kLinear},
           {wide, R"({"rope_theta": 500, "rope_scaling": {"rope_type": "linear", "type": "x", "factor": 2}})", kLinear},
           {wide,
            R"({"rope_parameters": {"rope_theta": 500, "rope_type": "default"},
                "rope_scaling": {"rope_type": "linear", "factor": 2}})",
            {0.5F, 0.05F, 0.005F, 0.0005F}},
           {wide,
            R"({"rope_theta": 500,
                "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}})",
            {1, 0.0477932F, 0.00559017F, 0.00118218F}},
           {wide,
            R"({"rope_theta": 500, "original_max_position_embeddings": 16,
                "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                 "original_max_position_embeddings": 30}})",
            kLlama3},
           {wide,
            R"({"rope_theta": 500,
                "rope_scaling": {"type": "yarn", "factor": null, "original_max_position_embeddings": 10}})",
            kYarn, 1.138629436111989},
           {wide,
            R"({"rope_theta": 500, "rope_scaling": {"type": "yarn", "factor": 4}})",
            {1, 0.132171F, 0.0111803F, 0.00236435F},
            1.138629436111989},
           {wide,
            R"({"rope_theta": 500, "original_max_position_embeddings": 20,
                "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 2.5, "beta_slow": 0.5, "truncate": false}})",
            {1, 0.0821716F, 0.0111803F, 0.00236435F},
            1.138629436111989},
           {wide,
            R"({"rope_parameters": {"rope_theta": 500, "rope_type": "yarn", "factor": 4, "beta_fast": 2, "beta_slow": 0,
                "original_max_position_embeddings": 10, "truncate": null, "mscale": 0.7, "mscale_all_dim": 0.4}})",
            kYarn, 1.0394038191422568},
           {wide,
            R"({"rope_parameters": {"rope_theta": 500, "rope_type": "yarn", "factor": 4, "mscale": 0.7,
                "original_max_position_embeddings": 10, "attention_factor": 1.5}})",
            kYarn, 1.5},
           {kNeox, R"({"rotary_emb_base": 500, "rotary_pct": 0.5, "rope_theta": 500})", {1, 0.0447214F}},
           {kNeox,
            R"({"rotary_emb_base": 500, "rotary_pct": 1,
                "rope_parameters": {"rope_theta": 50, "partial_rotary_factor": 0.5}})",
            {1, 0.141421F}},
           {kNeox, R"({"rotary_emb_base": 500, "rotary_pct": 1, "rope_scaling": {"type": "linear", "factor": 2}})",
            kLinear}}) {
    const RotaryConfig rotary = read(one.config, json::parse(one.keys)).rotary;
    EXPECT_TRUE(at::allclose(rotary_frequencies(rotary), at::tensor(one.frequencies), 1e-5)) << one.keys;
    EXPECT_DOUBLE_EQ(rotary.attention_factor, one.attention) << one.keys;
    const RotaryTable table = rotary_table(rotary, 3, at::kFloat);
    EXPECT_FLOAT_EQ(table.cosine[0][0].item<float>(), static_cast<float>(one.attention)) << one.keys;
  }
}

TEST_F(Families, WhatDoesNotFitOrWouldGiveOtherNumbersIsNamed) {
  struct Refused {
    json config, changes;
    std::vector<std::string> message = {};  // besides the changed keys
  };
  for (const Refused& one : std::vector<Refused>{
           {llama(), {{"num_key_value_heads", 4}, {"hidden_act", "mish"}}, {"divisor of 6"}},
           {llama(), {{"head_dim", 5}, {"quantization_config", {{"bits", 4}}}, {"is_encoder_decoder", true}}},
           {llama(), {{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}}}}, {"rope_type", "llama3"}},
           {llama(), {{"rope_scaling", {{"type", "linear"}}}}, {"factor"}},
           {llama(), {{"rope_parameters", {{"rope_type", "dynamic"}}}}, {"factor"}},
           {llama(), {{"rope_scaling", {{"type", "llama3"}, {"factor", 2.0}}}}, {"low_freq_fac", "high_freq_fac"}},
           {llama(), {{"rope_scaling", 2.0}, {"is_causal", false}}, {"object", "true"}},
           {llama(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}}}}, {"full_attention"}},
           {llama(), {{"partial_rotary_factor", 0.5}, {"rotary_emb_base", 5.0}}},
           {llama(), {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, {"partial_rotary_factor"}},
           {llama(), {{"architectures", {"FalconForCausalLM"}}}, {"FalconForCausalLM", "BloomForCausalLM"}},
           {llama(), {{"attn_logit_softcapping", 1}, {"no_rope_layers", {1, 0}}, {"alibi", 1}}, {"0, which switches"}},
           {gpt2(), {{"clip_qkv", 1.0}, {"use_parallel_residual", true}, {"norm_type", "rms"}, {"rotary_dim", 1}}},
           {bloom(), {{"residual_multiplier", 0.0}, {"rope_ratio", 0}}, {"1, which switches it off"}},
           {opt(), {{"kv_lora_rank", 1}, {"n_routed_experts", 1}, {"logit_cap", 1}, {"use_dynamic_ntk", true}}},
           {like_llama("MistralForCausalLM"), {{"sliding_window", 0}}},
           {like_llama("LlamaForCausalLM"), {{"sliding_window", 8}}, {"this family"}},
           {like_llama("Gemma3ForCausalLM"), {{"rope_scaling", "linear"}}, {"object"}},
           {like_llama("Gemma3ForCausalLM"), {{"rope_scaling", {{"type", "linear"}}}}, {"older key", ":\"linear\""}},
           {like_llama("Gemma3ForCausalLM"), {{"rope_scaling", {{"rope_type", "linear"}}}}, {"rope_scaling: 'factor'"}},
           {like_llama("Gemma2ForCausalLM"), {{"use_bidirectional_attention", true}, {"sliding_window", nullptr}}},
           {like_llama("Gemma2ForCausalLM"), {{"layer_types", {"full_attention"}}}, {"2 times"}},
           {like_llama("Gemma3ForCausalLM"), {{"attn_logit_softcapping", 50.0}}},
           {like_llama("Gemma3ForCausalLM"), {{"rope_parameters", {{"rope_theta", 5.0}}}}, {"'rope_theta'"}},
           {like_llama("", {{"text_config", 1}}), {{"architectures", {"Gemma3ForConditionalGeneration"}}}, {"images"}},
           {like_llama("Qwen2ForCausalLM"), {{"use_sliding_window", true}}},
           {like_llama("Qwen3ForCausalLM"), {{"layer_types", {"full_attention", "sliding_attention"}}}},
           {like_llama("SmolLM3ForCausalLM"), {{"no_rope_layers", {1}}}, {"2 numbers"}},
           {like_llama("Phi3ForCausalLM"), {{"rope_scaling", {{"type", "longrope"}}}}, {"longrope"}},
           {like_llama("Phi3ForCausalLM"), {{"partial_rotary_factor", 0.25}}},
           {opt(), {{"do_layer_norm_before", false}, {"layer_norm_elementwise_affine", false}}},
           {opt(), {{"word_embed_proj_dim", 6}}, {"350m"}},
           {gpt2(), {{"n_head", 5}}, {"divisor of 12"}},
           {gpt2(), {{"num_attention_heads", 6}}, {"another name of 'n_head'"}},
           {tiny_t5_config(), {{"head_dim", 3}}, {"another name of 'd_kv'"}},
           {gpt2(), {{"scale_attn_by_inverse_layer_idx", true}, {"add_cross_attention", true}}},
           {gpt_neox(), {{"head_dim", 4}}},
           {gpt_neox(), {{"num_attention_heads", 3}, {"rotary_pct", 0.1}}},
           {gpt_neox(), {{"rope_theta", 5.0}, {"partial_rotary_factor", 0.5}}},
           {bloom(), {{"n_head", 5}, {"apply_residual_connection_post_layernorm", true}}}}) {
    const std::string message = error_of([&] { read(one.config, one.changes); });
    for (const auto& change : one.changes.items()) EXPECT_THAT(message, HasSubstr(change.key()));
    for (const std::string& part : one.message) EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST_F(Families, TokenIdsHaveDefaultsAndSizesOtherNames) {
  EXPECT_EQ(read(llama()).eos, std::vector<int64_t>{2});
  EXPECT_EQ(read(llama()).bos, 1);
  EXPECT_EQ(read(llama(), {{"eos_token_id", {3, 4}}}).eos, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(read(gpt2(), {{"bos_token_id", 30}}).decoder_start, 30);
  EXPECT_EQ(read(bloom()).pad, 2);
  json other_name = gpt2();
  other_name.erase("n_head");
  EXPECT_EQ(read(other_name, {{"num_attention_heads", 6}}).heads, 6);
}

// Checkpoints of other alphabets keep GPT-2's 50256: such an id never occurs. A start id must exist.
TEST_F(Families, IdsThatTheVocabularyDoesNotHaveAreIgnoredWithOneWarning) {
  json t5 = tiny_t5_config();
  struct Ignored {
    json config, changes;
    std::vector<int64_t> eos;
    int64_t pad;
  };
  for (const Ignored& one :
       std::vector<Ignored>{{gpt2(), {{"bos_token_id", 50256}, {"eos_token_id", 50256}}, {}, 0},
                            {llama(), {{"bos_token_id", 31}, {"eos_token_id", {31, 4, 50256}}}, {4}, 4},
                            {llama(), {{"eos_token_id", 7}, {"pad_token_id", -1}}, {7}, 7},
                            {gpt_neox(), {{"eos_token_id", {40, 41}}, {"pad_token_id", 3}}, {}, 3},
                            {t5, {{"eos_token_id", 11}, {"pad_token_id", 12}}, {}, 0}}) {
    const CapturedLog log;
    const TransformerConfig config = read(one.config, one.changes);
    EXPECT_EQ(config.eos, one.eos) << one.changes;
    EXPECT_EQ(config.pad, one.pad) << one.changes;
    EXPECT_EQ(log.warnings(), 1) << log.text();
    EXPECT_THAT(log.text(), HasSubstr("_token_id"));
    read(one.config, one.changes);
    EXPECT_EQ(log.warnings(), 1) << "the same directory is read many times";
  }
  EXPECT_THAT(error_of([&] { read(t5, {{"decoder_start_token_id", 11}}); }), HasSubstr("decoder_start_token_id"));
  EXPECT_THAT(error_of([&] {
                read(t5, {{"decoder_start_token_id", nullptr}, {"pad_token_id", 11}});
              }),
              HasSubstr("pad_token_id"));
  EXPECT_EQ(read(llama(), {{"eos_token_id", nullptr}}).eos, std::vector<int64_t>{});
}

TEST_F(Families, WindowsAreReadWhereTheyCut) {
  EXPECT_EQ(read(like_llama("MistralForCausalLM")).window, 0) << "no text is longer than 4096 tokens";
  const auto mistral = read(like_llama("MistralForCausalLM"), {{"sliding_window", 39}});
  EXPECT_EQ(mistral.window, 39);
  EXPECT_THAT(mistral.window_layers, ElementsAre(0, 1));
  EXPECT_EQ(read(like_llama("MistralForCausalLM")).max_positions, 40);  // a window of 4096 where none is given
  for (const json& window : {json(), json(40)}) {
    EXPECT_EQ(read(like_llama("MistralForCausalLM"), {{"sliding_window", window}}).family, "mistral");
  }
  const json switched_off = {{"sliding_window", 8}, {"max_window_layers", 1}, {"use_sliding_window", false}};
  EXPECT_TRUE(read(like_llama("Qwen2ForCausalLM"), switched_off).projection_bias);
}

TEST_F(Families, LayersOfSmolLm3RotateByListOrInterval) {
  const json smol = like_llama("SmolLM3ForCausalLM", {{"num_hidden_layers", 5}});
  EXPECT_THAT(read(smol).unrotated_layers, ElementsAre(3));
  EXPECT_EQ(read(smol).rotary.base, 2e6);
  EXPECT_EQ(read(smol, {{"rope_theta", 10000.0}}).rotary.base, 10000.0);
  EXPECT_THAT(read(smol, {{"no_rope_layer_interval", 2}}).unrotated_layers, ElementsAre(1, 3));
  EXPECT_THAT(read(smol, {{"no_rope_layers", {0, 1, 1, 1, 0}}}).unrotated_layers, ElementsAre(0, 4));
}

TEST_F(Families, GemmasHaveCapsScalesAndWindowsOfSomeLayers) {
  const json layers = {{"num_hidden_layers", 7}};
  const TransformerConfig second = read(like_llama("Gemma2ForCausalLM", layers));
  EXPECT_THAT(second.window_layers, ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(second.score_cap, 50);
  EXPECT_EQ(second.logit_cap, 30);
  EXPECT_EQ(second.attention_scale, 1.0 / 16);
  EXPECT_EQ(read(like_llama("Gemma2ForCausalLM"), {{"attn_logit_softcapping", nullptr}}).score_cap, 0);
  const json old = {{"rope_theta", 5000.0},
                    {"rope_local_base_freq", 100.0},
                    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                    {"sliding_window_pattern", 3}};
  const TransformerConfig third = read(like_llama("Gemma3ForCausalLM", layers), old);
  EXPECT_THAT(third.window_layers, ElementsAre(0, 1, 3, 4, 6));
  EXPECT_EQ(third.rotary, (RotaryConfig{.width = 4, .base = 5000, .scaling = RotaryScaling::kLinear, .factor = 8}));
  EXPECT_EQ(third.window_rotary, (RotaryConfig{.width = 4, .base = 100}));
  EXPECT_EQ(third.embedding_scale, std::sqrt(12.0));
}

TEST_F(Families, GraniteHasFourMultipliers) {
  const auto granite = read(like_llama("GraniteForCausalLM"), {{"embedding_multiplier", 12}, {"logits_scaling", 8}});
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.output_scale, 1.0 / 8);
  EXPECT_EQ(granite.attention_scale, 1) << "not by the width of a head";
}

// Real directories have keys of many programs; those that change no number must not stop anyone.
TEST_F(Families, UnknownKeysAreOneWarning) {
  const CapturedLog log;
  const json changes = json::parse(R"({"transformers_version": "5.23.0", "torch_dtype": "bfloat16", "num_beams": 4,
    "zebra_stripes": [3], "rope_interleaved": false, "residual_multiplier": 1.0, "clip_qkv": 0, "rope_ratio": 1,
    "norm_type": null, "ant_legs": 6})");
  read(llama(), changes);
  read(llama(), changes);
  EXPECT_EQ(log.warnings(), 1);
  EXPECT_THAT(log.text(), HasSubstr("ignored: ant_legs, zebra_stripes"));
}

// What is written is read back as the same model, its parameters joined and split again.
TEST_F(Families, SavedModelsAreReadBack) {
  json yarn = llama();
  yarn["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 3.7}, {"beta_fast", 7}, {"truncate", false}};
  json dynamic = gpt_neox();
  dynamic["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2}};
  for (const json& config :
       {llama(), gpt2(), gpt_neox(), bloom(), opt(), like_llama("MistralForCausalLM"), like_llama("Qwen2ForCausalLM"),
        like_llama("Qwen3ForCausalLM"), like_llama("SmolLM3ForCausalLM", {{"num_hidden_layers", 4}}),
        like_llama("GraniteForCausalLM", {{"residual_multiplier", 0.3}, {"logits_scaling", 3}}),
        like_llama("Olmo2ForCausalLM"), like_llama("Phi3ForCausalLM", {{"partial_rotary_factor", 0.5}}), yarn, dynamic,
        like_llama("MistralForCausalLM", {{"sliding_window", 9}}),
        like_llama("Gemma2ForCausalLM", {{"query_pre_attn_scalar", 10}, {"final_logit_softcapping", nullptr}}),
        like_llama("Gemma3ForCausalLM", {{"sliding_window", 9}, {"rope_local_base_freq", 70.0}})}) {
    const TransformerConfig wanted = read(config);
    TransformerModel model(wanted, 3);
    const TemporaryDirectory folder;
    save_model(folder / "model", model);
    const auto again = load_model(folder / "model", {.pack = false});
    EXPECT_EQ(again->config().family, wanted.family);
    EXPECT_EQ(again->config().key_value_heads(), wanted.key_value_heads());
    EXPECT_EQ(again->config().rotary, wanted.rotary);
    const json written = load_json(folder / "model/config.json");
    EXPECT_EQ(written.contains("rope_scaling"), wanted.rotary.scaling != RotaryScaling::kNone);
    EXPECT_EQ(again->config().bos, wanted.bos);
    EXPECT_EQ(again->config().unrotated_layers, wanted.unrotated_layers);
    EXPECT_EQ(again->config().residual_scale, wanted.residual_scale);
    EXPECT_EQ(again->config().window, wanted.window);
    EXPECT_EQ(again->config().window_layers, wanted.window_layers);
    EXPECT_EQ(again->config().window_rotary, wanted.window_rotary);
    EXPECT_EQ(again->config().score_cap, wanted.score_cap);
    EXPECT_EQ(again->config().logit_cap, wanted.logit_cap);
    EXPECT_EQ(again->config().attention_scale, wanted.attention_scale);
    EXPECT_NEAR(again->config().output_scale, wanted.output_scale, 1e-12);
    ASSERT_EQ(again->parameters().size(), model.parameters().size()) << wanted.family;
    for (const auto& [name, tensor] : model.parameters()) {
      EXPECT_TRUE(tensor.equal(again->parameters().at(name))) << wanted.family << ": " << name;
    }
  }
}

TEST_F(Families, ATensorThatHoldsJoinedParametersIsCheckedAsAWhole) {
  TransformerModel model(read(gpt_neox()), 3);
  save_model(folder_ / "model", model);
  const auto file = folder_ / "model/model.safetensors";
  std::vector<TensorToStore> tensors;
  {
    const SafetensorsFile stored(file);
    for (const auto& [name, entry] : stored.tensors()) {
      const bool cut = name == "gpt_neox.layers.1.attention.query_key_value.weight";
      const at::Tensor whole = stored.stored(name).to(at::kFloat);
      tensors.push_back({name, cut ? whole.narrow(0, 0, 40).clone() : whole, at::kFloat});
    }
  }
  std::filesystem::remove(file);
  write_safetensors(file, std::move(tensors));
  EXPECT_THAT(error_of([&] { load_model(folder_ / "model"); }),
              AllOf(HasSubstr("gpt_neox.layers.1.attention.query_key_value.weight"), HasSubstr("[48, 16]"),
                    HasSubstr("[40, 16]")));
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
  const json settings = json::parse(R"({"pad_token_id": 3, "eos_token_id": [1, 7], "decoder_start_token_id": 4,
    "bos_token_id": 5, "repetition_penalty": 1.2, "no_repeat_ngram_size": 3,
    "bad_words_ids": [[8], [9, 10]], "min_length": 2, "min_new_tokens": 1,
    "forced_bos_token_id": 11, "forced_eos_token_id": 1, "suppress_tokens": [12, 13],
    "max_length": 50, "max_new_tokens": 40, "do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.75,
    "min_p": 0.1, "num_beams": 4, "length_penalty": 0.6, "early_stopping": true, "stop_strings": ["a", "\n\n"]})");
  const GenerationConfig generation = read(settings);
  EXPECT_THAT(generation.eos_ids, ElementsAre(1, 7));
  EXPECT_THAT(generation.bad_words, ElementsAre(ElementsAre(8), ElementsAre(9, 10)));
  EXPECT_EQ(generation.forced_bos, 11);
  EXPECT_TRUE(generation.has_processors());
  EXPECT_TRUE(generation.unsupported.empty());
  EXPECT_EQ(json(to_json(generation)), settings);
}

TEST_F(GenerationSettings, WhatIsNotImplementedIsNamed) {
  const json settings = json::parse(R"({"num_beam_groups": 4, "typical_p": 0.9, "guidance_scale": 2,
    "sequence_bias": [[[1], -1.0]], "exponential_decay_length_penalty": [5, 1.1], "encoder_repetition_penalty": 1.5,
    "encoder_no_repeat_ngram_size": 4, "begin_suppress_tokens": [14], "a_key_of_tomorrow": true})");
  const GenerationConfig generation = read(settings);
  EXPECT_EQ(generation.unsupported.size(), settings.size());
  const std::string message = error_of([&] { require_supported(generation, "dir"); });
  for (const auto& setting : settings.items()) EXPECT_THAT(message, HasSubstr(setting.key()));
  EXPECT_EQ(to_json(generation)["num_beam_groups"], 4) << "saving a model keeps settings that we do not implement";
}

TEST_F(GenerationSettings, EarlyStoppingIsKeptForTransformers) {
  EXPECT_EQ(to_json(read({{"early_stopping", "never"}}))["early_stopping"], "never");
}

TEST_F(GenerationSettings, NeutralAndHarmlessValuesAreSupported) {
  const GenerationConfig generation = read(json::parse(R"({"num_beams": 1, "typical_p": 1.0, "guidance_scale": null,
    "stop_strings": [], "sequence_bias": {}, "penalty_alpha": 0, "renormalize_logits": false, "encoder_repetition_penalty": 1.0,
    "_from_model_config": true, "transformers_version": "5.23.0", "use_cache": true, "length_penalty": 2.0,
    "eos_token_id": null, "temperature": null})"));
  EXPECT_NO_THROW(require_supported(generation, "dir"));
  EXPECT_THAT(generation.eos_ids, ElementsAre(1)) << "the config's own";
  EXPECT_FALSE(generation.has_processors());
  EXPECT_THAT(read({{"stop_strings", "end"}}).stop_strings, ElementsAre("end"));
}

TEST_F(GenerationSettings, OldModelsKeepThemInConfigJson) {
  const GenerationConfig generation =
      read_without_file(json::parse(R"({"d_model": 512, "num_beam_groups": 2, "num_beams": 3,
    "no_repeat_ngram_size": 3, "task_specific_params": {"num_beams": 4}})"));
  EXPECT_EQ(generation.no_repeat_ngram_size, 3);
  ASSERT_EQ(generation.unsupported.size(), 1);
  EXPECT_EQ(generation.unsupported.begin()->first, "num_beam_groups");
  EXPECT_EQ(generation.num_beams, 3);
}

TEST_F(GenerationSettings, IdsThatNeverOccurAreIgnoredWithOneWarning) {
  const CapturedLog log;
  const GenerationConfig generation = read(json::parse(R"({"pad_token_id": -1, "eos_token_id": [1, 100],
    "bos_token_id": 50256, "suppress_tokens": [3, 100],
    "bad_words_ids": [[5, 100], [6]]})"));
  EXPECT_THAT(generation.bad_words, ElementsAre(ElementsAre(6)));
  EXPECT_EQ(generation.pad, config_.pad);
  EXPECT_THAT(generation.eos_ids, ElementsAre(1));
  EXPECT_EQ(generation.bos, std::nullopt);
  EXPECT_THAT(generation.suppress, ElementsAre(3));
  EXPECT_EQ(log.warnings(), 1) << log.text();
  EXPECT_TRUE(read({{"eos_token_id", 100}}).eos_ids.empty());
}

TEST_F(GenerationSettings, IdsOutsideTheVocabularyAndBadValuesAreAllReported) {
  const json settings = json::parse(R"({"decoder_start_token_id": 100, "forced_bos_token_id": 100,
    "forced_eos_token_id": [1, 100], "eos_token_id": "x", "suppress_tokens": [0.5], "bad_words_ids": [[5], []],
    "repetition_penalty": 0, "top_p": 1.5, "min_p": -0.1, "stop_strings": ["a", ""], "max_length": 1099511627776,
    "max_new_tokens": 0, "num_beams": 0})");
  const std::string message = error_of([&] { read(settings); });
  for (const auto& setting : settings.items()) EXPECT_THAT(message, HasSubstr(setting.key()));
}

}  // namespace
}  // namespace draftsmith::model
