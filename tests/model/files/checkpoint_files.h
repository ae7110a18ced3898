// Model directories made by hand for tests of reading them: a tiny T5 with random weights, and raw safetensors files
// with any header one likes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/files/safetensors.h"

namespace draftsmith::model {

// config.json of a tiny T5 v1.0: 2 encoder and 3 decoder layers, d_kv * heads != d_model.
nlohmann::json tiny_t5_config();

// The tensors such a config.json asks for, random, under their stored names.
std::vector<TensorToStore> tensors_of(const nlohmann::json& config_json);

// Writes config.json and model.safetensors.
void write_directory(const std::filesystem::path& directory, const nlohmann::json& config_json);

// A safetensors file: length of the header, header, data.
std::string raw_safetensors(const std::string& header, const std::string& data);

}  // namespace draftsmith::model
