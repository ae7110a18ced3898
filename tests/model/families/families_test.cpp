// Readers of decoder-only families: what their config.json means, and what they refuse. What the models compute is
// compared with Transformers in tests/parity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/layers/rotary.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;
using testing::AllOf;
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

}  // namespace
}  // namespace draftsmith::model
