// Parts that the families' readers and writers share: limits, names of activations, and parameters' names by a table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/families/stored_layout.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Limits far beyond any real model: products of any three of them fit int64.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 18;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Returns the activation of a name in config.json; "gelu_new" is the tanh approximation.
std::optional<Activation> activation_named(const std::string& name);
std::string activation_name(Activation activation);
// Reads the activation under `key`, with a problem if it is not known here.
Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& fallback);

// Returns a decoder-only configuration with RMS norms and no biases.
TransformerConfig decoder_only(const std::string& family);
// Returns a decoder-only configuration with layer norms and biases in all layers, as GPT-2 and its successors have.
TransformerConfig decoder_only_with_biases(const std::string& family);

// Names that a decoder-only family's files give to parameters.
struct NameTable {
  std::map<std::string, std::string> outside;  // of whole names: "head.weight" -> "lm_head.weight"
  std::string blocks;                          // what stands before a layer's number: "model.layers."
  // Modules of a layer: "self_attention.query" -> "self_attn.q_proj". Joined parameters have one name.
  std::map<std::string, std::string> modules;
  Join join = Join::kNone;  // of query, key and value
  bool transposed = false;  // matrices are stored [in,out]
};
// Returns the place of a parameter by its family's table. Throws std::logic_error for a name that is not in the table.
StoredTensor stored_by(const NameTable& table, const std::string& parameter);

// Reads the width of a head that divides the model's width; problems name `heads_key` and `width_key`.
int64_t read_split_width(ConfigReader& reader, const TransformerConfig& config, const std::string& heads_key,
                         const std::string& width_key);

// A family's own token ids, for a config.json without any.
struct UsualIds {
  int64_t bos = 0;
  int64_t eos = 0;
};
// Reads the keys that all decoder-only families share: token ids, and quantised weights, which are refused.
// `config.vocabulary` must be set.
void read_decoder_only(ConfigReader& reader, TransformerConfig& config, const UsualIds& usual);
// Writes token ids, the tied head and the other keys that every decoder-only config.json has.
void write_decoder_only(const TransformerConfig& config, nlohmann::ordered_json& out);

}  // namespace draftsmith::model
