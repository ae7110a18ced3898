// Model directories made by hand for tests of reading them: a tiny T5 with random weights, and raw safetensors files
// with any header one likes.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "model/families/family.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

// config.json of a tiny T5 v1.0: 2 encoder and 3 decoder layers, d_kv * heads != d_model.
inline nlohmann::json tiny_t5_config() {
  return nlohmann::json::parse(R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
    "vocab_size": 11, "d_model": 6, "d_kv": 5, "d_ff": 7, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2,
    "feed_forward_proj": "relu", "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0})");
}

// Tests of what a config.json says.
class ReadsConfigs : public testing::Test {
 protected:
  TransformerConfig read(nlohmann::json config, const nlohmann::json& changes = nlohmann::json::object()) const {
    config.update(changes);
    write_json(folder_ / "config.json", nlohmann::ordered_json(config));
    return read_settings(folder_.path()).config;
  }

  TemporaryDirectory folder_;
};

// The tensors such a config.json asks for, random, under their stored names.
inline std::vector<TensorToStore> tensors_of(const nlohmann::json& config_json) {
  Problems problems;
  const Family& family = family_of(config_json, "test");
  ConfigKeys keys(ConfigReader(config_json, "test", problems));
  const TransformerConfig config = read_config(family, keys);
  problems.throw_if_any();
  std::vector<TensorToStore> tensors;
  at::Generator generator = at::detail::createCPUGenerator(7);
  for (const ParameterSpec& spec : expected_parameters(config)) {
    tensors.push_back({stored_parameter(family, spec.name, config).name, at::randn(spec.shape, generator), at::kFloat});
  }
  return tensors;
}

// Writes config.json and model.safetensors.
inline void write_directory(const std::filesystem::path& directory, const nlohmann::json& config_json) {
  make_directories(directory);
  write_json(directory / "config.json", config_json);
  write_safetensors(directory / "model.safetensors", tensors_of(config_json));
}

// Applies a merge patch (RFC 7396) to the config.json of a directory.
inline void patch_config(const std::filesystem::path& directory, const nlohmann::json& patch) {
  nlohmann::json config = load_json(directory / "config.json");
  config.merge_patch(patch);
  write_json(directory / "config.json", nlohmann::ordered_json(config));
}

// A safetensors file: length of the header, header, data.
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  const uint64_t bytes = header.size();
  std::string length(sizeof(bytes), '\0');
  std::memcpy(length.data(), &bytes, sizeof(bytes));
  return length + header + data;
}

}  // namespace draftsmith::model
