// Readers of encoder-decoders with layer norms: what files of real checkpoints may hold and lack, and what is refused.
// What the models compute is compared with Transformers in tests/parity.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;

json seq2seq(const std::string& architecture) {
  json config = json::parse(R"({"vocab_size": 31, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
    "max_position_embeddings": 40})");
  config["architectures"] = {architecture};
  return config;
}

const std::vector<std::string> kArchitectures = {"MarianMTModel", "M2M100ForConditionalGeneration",
                                                 "BartForConditionalGeneration", "MBartForConditionalGeneration",
                                                 "PegasusForConditionalGeneration"};

class Seq2Seq : public ReadsConfigs {
 protected:
  using Tensors = std::map<std::string, at::Tensor>;

  // Opens a directory of random weights after `change` was done to them.
  std::unique_ptr<TransformerModel> load_changed(const std::string& architecture,
                                                 const std::function<void(Tensors&)>& change) const {
    TransformerModel model(read(seq2seq(architecture)), 3);
    const TemporaryDirectory folder;
    save_model(folder / "model", model);
    const std::filesystem::path file = folder / "model/model.safetensors";
    Tensors tensors;
    {
      const SafetensorsFile saved(file);
      for (const auto& [name, entry] : saved.tensors()) tensors[name] = saved.stored(name).to(at::kFloat).clone();
    }
    change(tensors);
    std::vector<TensorToStore> stored;
    for (const auto& [name, tensor] : tensors) stored.push_back({name, tensor, at::kFloat});
    std::filesystem::remove(file);
    write_safetensors(file, std::move(stored));
    return load_model(folder / "model", {.pack = false});
  }
};

TEST_F(Seq2Seq, WhatDoesNotFitIsNamed) {
  for (const auto& [architecture, key, value] : std::vector<std::tuple<std::string, std::string, json>>{
           {kArchitectures[0], "decoder_ffn_dim", 24},
           {kArchitectures[2], "decoder_attention_heads", 4},
           {kArchitectures[2], "encoder_attention_heads", 5},
           {kArchitectures[0], "share_encoder_decoder_embeddings", false},
           {kArchitectures[0], "decoder_vocab_size", 30},
           {kArchitectures[1], "decoder_start_token_id", 1},
           {kArchitectures[2], "normalize_before", true},
           {kArchitectures[4], "normalize_embedding", true},
           {kArchitectures[3], "encoder_layers", 0}}) {
    EXPECT_THAT(error_of([&] { read(seq2seq(architecture), {{key, value}}); }), HasSubstr(key)) << architecture;
  }
}

TEST_F(Seq2Seq, TheEmbeddingHasAnyNameAndTheBiasMayLack) {
  for (const char* name :
       {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}) {
    const auto model = load_changed(kArchitectures[2], [&](Tensors& tensors) {
      tensors[name] = tensors.extract("model.shared.weight").mapped();
      tensors.erase("final_logits_bias");
    });
    EXPECT_TRUE(model->config().tied_head) << name;
    EXPECT_FALSE(model->config().head_bias) << name;
  }
}

// facebook/bart-base is a BartModel: its files leave out the prefix, and perhaps the architecture's usual name.
TEST_F(Seq2Seq, TheBareModelIsRead) {
  EXPECT_EQ(read(seq2seq("BartModel")).family, "bart");
  const auto model = load_changed(kArchitectures[2], [](Tensors& tensors) {
    Tensors bare;
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with("model.")) bare[name.substr(6)] = tensor;
    }
    bare["encoder.embed_tokens.weight"] = bare.at("shared.weight").clone();
    tensors = bare;
  });
  EXPECT_EQ(model->config().family, "bart");
  const auto wrap = [](Tensors& tensors) {
    for (const auto& [name, tensor] : std::exchange(tensors, {})) tensors["language_" + name] = tensor;
  };
  EXPECT_THAT(error_of([&] { load_changed(kArchitectures[2], wrap); }),
              HasSubstr("'model.' in place of 'language_model.'"));
}

// M2M-100 counts no padding inside of a source, so the other tokens' states are the same wherever it stands.
TEST_F(Seq2Seq, PaddingInsideOfASourceHasNoPosition) {
  TransformerModel model(read(seq2seq(kArchitectures[1])), 3);
  const TokenBatch sources{at::tensor({5, 1, 6, 7, 1, 5, 6, 7, 5, 6, 1, 7}, at::kLong).view({3, 4}), {4, 4, 4}};
  const at::Tensor states = model.encode(sources).hidden;
  const at::Tensor texts = states.flatten(0, 1).index_select(0, sources.tokens.view(-1).ne(1).nonzero().view(-1));
  EXPECT_TRUE(at::allclose(texts.narrow(0, 0, 3).repeat({3, 1}), texts, 1e-4, 1e-5));
}

TEST_F(Seq2Seq, StoredSinusoidsAreThoseThatTheModelComputes) {
  const std::string name = "model.encoder.embed_positions.weight";
  EXPECT_NO_THROW(load_changed(kArchitectures[4], [&](Tensors& tensors) { tensors.at(name) += 5e-4; }));
  EXPECT_NO_THROW(load_changed(kArchitectures[0], [&](Tensors& tensors) { EXPECT_FALSE(tensors.contains(name)); }));
  for (const auto& change :
       std::vector<std::function<void(Tensors&)>>{[&](Tensors& tensors) { tensors.at(name)[7][3] += 2e-3; },
                                                  [&](Tensors& tensors) {
                                                    tensors.at(name) = at::zeros({40, 13});
                                                  }}) {
    EXPECT_THAT(error_of([&] { load_changed(kArchitectures[4], change); }), HasSubstr(name));
  }
}

}  // namespace
}  // namespace draftsmith::model
