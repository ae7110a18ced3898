// What the families' readers and writers share: limits, names of activations, and parameters' names in parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/config_reader.h"
#include "model/transformer_config.h"

namespace draftsmith::model {

// Limits far beyond any real model: products of any three of them fit int64.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 18;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Activation of a name in config.json; "gelu_new" is the tanh approximation.
std::optional<Activation> activation_named(const std::string& name);
std::string activation_name(Activation activation);
// The activation under `key`, with a problem where it is none that is known here.
Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& fallback);

// A parameter of a block, "decoder.3.self_attention.query.weight": its layer, part and leaf.
struct BlockParameter {
  std::string layer;  // "3"
  std::string part;   // "self_attention"
  std::string leaf;   // "query.weight"
};
// Nothing for parameters outside the decoder's blocks.
std::optional<BlockParameter> decoder_parameter(const std::string& parameter);

// Keys that all decoder-only families share: token ids, dropout left to the family, quantised weights refused.
// `config.vocabulary` is set already.
void read_decoder_only(ConfigReader& reader, TransformerConfig& config, std::optional<int64_t> eos);
// Token ids, tied head and what else every decoder-only config.json says.
void write_decoder_only(const TransformerConfig& config, nlohmann::ordered_json& out);

}  // namespace draftsmith::model
